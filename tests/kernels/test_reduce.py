from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.row_invariance import FEW, assert_row_invariant, bits, rows_of_normals, spread
from tfjax.kernels.reduce import first_largest, in_order, in_turn, tree_sum

summed = jax.jit(tree_sum)


@pytest.mark.parametrize("width", [1, 2, 3, 9, 64, 128, 576, 1000])
def test_is_the_sum(width: int) -> None:
    x = rows_of_normals(width, 5, width)
    np.testing.assert_allclose(summed(x)[:, 0], x.astype(np.float64).sum(-1), rtol=1e-5, atol=1e-5)


def test_adds_the_upper_half_to_the_lower() -> None:
    """With one large entry the order of additions shows: 1e8 swallows a single 1 and not a sum of many."""
    x = np.array([[1e8, 1, 1, 1, -1e8, 1, 1, 1]], np.float32)
    assert summed(x)[0, 0] == 6
    x = np.array([[1e8, 4, 1, 1, 1, -1e8, 1, 1]], np.float32)
    half = x[:, :4] + x[:, 4:]
    quarter = half[:, :2] + half[:, 2:]
    assert summed(x)[0, 0] == quarter[0, 0] + quarter[0, 1]


def test_keeps_leading_axes_and_dtype() -> None:
    x = jnp.ones((2, 3, 5), jnp.bfloat16)
    assert tree_sum(x).shape == (2, 3, 1)
    assert tree_sum(x).dtype == jnp.bfloat16


@pytest.mark.parametrize("width", [9, 128, 576, 49152])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_rows_are_invariant(width: int, dtype: type) -> None:
    rows = spread(rows_of_normals(2, 129 if width > 1000 else 140, width, dtype=dtype))
    assert_row_invariant(summed, rows, counts=FEW)


def test_is_the_same_within_a_larger_program() -> None:
    """Fused with its producer and its consumer it still adds in the same order."""
    x = rows_of_normals(3, 33, 576)
    square = x * x
    fused = jax.jit(lambda x: tree_sum(jax.lax.optimization_barrier(x * x)) * 2)(x)
    assert np.array_equal(bits(fused), bits(summed(square) * 2))


@pytest.mark.parametrize("width", [1, 2, 9, 1000, 49152])
def test_the_first_largest(width: int) -> None:
    x = rows_of_normals(4, 9, width)
    assert np.array_equal(jax.jit(first_largest)(x), x.argmax(-1))
    few = np.round(x)  # many ties
    assert np.array_equal(jax.jit(first_largest)(few), few.argmax(-1))


def test_the_first_largest_of_odd_rows() -> None:
    x = np.full((5, 6), -np.inf, np.float32)
    x[1, 3:] = -1e38
    x[2, [2, 4]] = np.inf
    x[3, [1, 5]] = -0.0, 0.0
    x[4, [1, 5]] = 0.0, -0.0
    found = jax.jit(first_largest)(x)
    assert found.tolist() == [0, 3, 2, 1, 1]
    assert found.dtype == jnp.int32


def test_parts_are_added_first_to_last() -> None:
    parts = jnp.asarray([[[1e8]], [[-1e8]], [[1.0]]], jnp.float32)
    assert float(in_order(parts)[0, 0]) == 1.0


@pytest.mark.parametrize("terms", [1, 3, 8])
def test_products_summed_in_turn(terms: int) -> None:
    """Each is rounded before it is added, which numpy does too."""
    parts = [rows_of_normals(seed, 40, 24) for seed in range(terms)]
    factors = np.random.default_rng(9).normal(size=terms).astype(np.float32)
    run = jax.jit(lambda *parts: in_turn([part * factor for part, factor in zip(parts, factors, strict=True)]))
    wanted = parts[0] * factors[0]
    for part, factor in zip(parts[1:], factors[1:], strict=True):
        wanted = wanted + part * factor
    for rows in (1, 2, 3, 17, 40):
        found = np.asarray(run(*(part[:rows] for part in parts)))
        assert np.array_equal(bits(found), bits(wanted[:rows]))
