from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.row_invariance import COUNTS, FEW, assert_row_invariant, rows_of_normals
from tfjax.kernels.rope import rotate

FREQUENCY = (1 / 10000.0 ** (np.arange(0, 64, 2) / 64)).astype(np.float32)


def reference(x: Any, position: Any, frequency: Any) -> Any:
    """Rotation of complex numbers, low half real and high half imaginary."""
    half = x.shape[-1] // 2
    angle = position[:, None, None] * frequency.astype(np.float64)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([turned.real, turned.imag], -1)


def test_equals_the_reference() -> None:
    x, position = rows_of_normals(0, 5, 3, 64), np.array([0, 1, 63, 2000, 131071], np.int32)
    # The angle is a float32 product, so its error grows with the position.
    for rows, tolerance in ((slice(0, 3), 1e-4), (slice(3, 5), 2e-2)):
        found = rotate(jnp.asarray(x[rows]), jnp.asarray(position[rows]), jnp.asarray(FREQUENCY))
        np.testing.assert_allclose(found, reference(x[rows], position[rows], FREQUENCY), atol=tolerance)


def test_position_zero_changes_nothing() -> None:
    x = jnp.asarray(rows_of_normals(1, 4, 2, 64, dtype=ml_dtypes.bfloat16))
    assert np.array_equal(rotate(x, jnp.zeros(4, jnp.int32), jnp.asarray(FREQUENCY)), x)


def test_scores_depend_on_the_distance_only() -> None:
    q, k = (jnp.asarray(rows_of_normals(seed, 1, 1, 64)) for seed in (2, 3))

    def score(q_at: int, k_at: int) -> float:
        at = [rotate(x, jnp.array([place]), jnp.asarray(FREQUENCY)) for x, place in ((q, q_at), (k, k_at))]
        return float(jnp.sum(at[0] * at[1]))

    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-3)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-2)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("heads", [1, 3, 9])
def test_rows_are_invariant(dtype: Any, heads: int) -> None:
    turned = jax.jit(lambda x, position: rotate(x, position, jnp.asarray(FREQUENCY)))
    position = np.random.default_rng(4).integers(0, 8192, 140).astype(np.int32)
    rows = rows_of_normals(5, 140, heads, 64, dtype=dtype)
    assert_row_invariant(turned, rows, position, counts=COUNTS if heads == 3 else FEW)


def test_interleaved_pairs_are_neighbours() -> None:
    """The same rotation, of pairs (2i, 2i + 1)."""
    x, position = rows_of_normals(0, 3, 3, 64), np.array([0, 1, 63], np.int32)
    found = rotate(jnp.asarray(x), jnp.asarray(position), jnp.asarray(FREQUENCY), interleaved=True)
    apart = np.concatenate([x[..., 0::2], x[..., 1::2]], -1)
    turned = reference(apart, position, FREQUENCY)
    np.testing.assert_allclose(found[..., 0::2], turned[..., :32], atol=1e-4)
    np.testing.assert_allclose(found[..., 1::2], turned[..., 32:], atol=1e-4)


@pytest.mark.parametrize("size", [2, 6, 16])
def test_rows_of_small_heads_are_invariant(size: int) -> None:
    frequency = jnp.asarray(FREQUENCY[: size // 2])
    turned = jax.jit(lambda x, position: rotate(x, position, frequency))
    position = np.random.default_rng(6).integers(0, 8192, 140).astype(np.int32)
    assert_row_invariant(turned, rows_of_normals(7, 140, 3, size), position, counts=FEW)
