"""Dense attention: packed sequences do not see each other, and nothing sees what comes after it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tfjax.models.blocks.rope import RopeConfig
from tfjax.train.small_dense import LAYER_TENSORS, Shape, places, rms_norm, run_layers

SHAPE = Shape(heads=4, kv_heads=2, head_dim=6, norm_eps=1e-5, rope=RopeConfig(10000.0))
SIZES = {"q": (24, 16), "k": (12, 16), "v": (12, 16), "o": (16, 24), "gate": (20, 16), "up": (20, 16), "down": (16, 20)}


def layers() -> dict[str, jnp.ndarray]:
    random = np.random.default_rng(0)
    sizes = {name: SIZES.get(name, (16,)) for name in LAYER_TENSORS}
    return {name: jnp.asarray(random.normal(len(size) == 1, 0.4, (2, *size))) for name, size in sizes.items()}


def forward(x: NDArray[np.float32], segment: list[int], position: list[int]) -> NDArray[np.float32]:
    at = places(jnp.asarray([segment]), jnp.asarray([position]))
    return np.asarray(jax.jit(run_layers, static_argnums=2)(jnp.asarray(x)[None], layers(), SHAPE, at))[0]


def inputs(length: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).normal(0, 1, (length, 16)).astype(np.float32)


def test_packed_sequences_are_computed_as_if_alone() -> None:
    x = inputs(9)
    packed = forward(x, [1, 1, 1, 1, 2, 2, 2, 0, 0], [0, 1, 2, 3, 0, 1, 2, 0, 0])
    np.testing.assert_allclose(packed[:4], forward(x[:4], [1] * 4, [0, 1, 2, 3]), atol=1e-5)
    np.testing.assert_allclose(packed[4:7], forward(x[4:7], [1] * 3, [0, 1, 2]), atol=1e-5)


def test_a_later_token_changes_nothing_before_it() -> None:
    x = inputs(6)
    other = x.copy()
    other[4] += 1
    first, second = (forward(rows, [1] * 6, list(range(6))) for rows in (x, other))
    np.testing.assert_array_equal(first[:4], second[:4])
    assert (first[4:] != second[4:]).any(axis=1).all()


def test_order_counts() -> None:
    x = inputs(4)
    swapped = x[[1, 0, 2, 3]]
    assert not np.allclose(forward(x, [1] * 4, [0, 1, 2, 3])[3], forward(swapped, [1] * 4, [0, 1, 2, 3])[3], atol=1e-3)


def test_only_distances_count() -> None:
    x = inputs(4)
    near, far = forward(x, [1] * 4, [0, 1, 2, 3]), forward(x, [1] * 4, [50, 51, 52, 53])
    np.testing.assert_allclose(near, far, atol=1e-4)


def test_rms_norm_scales_to_unit_mean_square_and_then_by_the_weight() -> None:
    x = inputs(3) * 7
    weight = jnp.arange(16, dtype=jnp.float32)
    expected = x / np.sqrt(np.mean(x * x, -1, keepdims=True)) * np.arange(16)
    np.testing.assert_allclose(rms_norm(jnp.asarray(x), weight, 1e-5), expected, rtol=1e-4)
    assert float(rms_norm(jnp.zeros(16), weight, 1e-5).sum()) == pytest.approx(0)
