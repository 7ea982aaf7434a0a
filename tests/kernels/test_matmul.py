from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.row_invariance import COUNTS, FEW, assert_row_invariant, rows_of_normals, spread
from tfjax.engine.least_rows import find_least_rows
from tfjax.kernels.matmul import MIN_ROWS, rows_matmul

DTYPES = [np.float32, ml_dtypes.bfloat16]
SMOLLM2 = {"qkv": (960, 576), "out": (576, 576), "gate_up": (3072, 576), "down": (576, 1536)}
ODD = {"smallest": (8, 8), "odd": (33, 33), "long": (33, 4097)}


def least_rows(weight: Any) -> int:
    """1, as a product pads itself to 2; 4 on processors whose matrix units treat few rows apart.

    Where no number of bfloat16 rows will do, a start finds that out and serves by a single bucket.
    """
    found = find_least_rows([jnp.asarray(weight)])
    if found.rows is None and weight.dtype == jnp.bfloat16:
        pytest.skip(f"this processor's products are not row-invariant: {found.reason}")
    assert found.rows is not None
    return 1 if found.rows <= MIN_ROWS else found.rows


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_is_the_product(dtype: Any, rows: int) -> None:
    x, weight = rows_of_normals(0, rows, 576, dtype=dtype), rows_of_normals(1, 48, 576, dtype=dtype)
    y = rows_matmul(jnp.asarray(x), jnp.asarray(weight))
    assert (y.shape, y.dtype) == ((rows, 48), jnp.float32)
    np.testing.assert_allclose(y, x.astype(np.float64) @ weight.astype(np.float64).T, atol=2e-4)


def test_accumulates_bfloat16_in_float32() -> None:
    """In bfloat16 257 ones would stick at 256."""
    ones = jnp.ones((2, 257), jnp.bfloat16)
    assert rows_matmul(ones, ones)[0, 0] == 257


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", (SMOLLM2 | ODD).values(), ids=(SMOLLM2 | ODD).keys())
def test_rows_are_invariant(dtype: Any, shape: tuple[int, int]) -> None:
    weight = spread(rows_of_normals(2, *shape, dtype=dtype))
    product = jax.jit(lambda x: rows_matmul(x, weight))
    rows = spread(rows_of_normals(3, 129, shape[1], dtype=dtype), seed=6)
    counts = COUNTS if shape == SMOLLM2["qkv"] else FEW
    assert_row_invariant(product, rows, counts=counts, least=least_rows(weight))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_a_head_are_invariant(dtype: Any) -> None:
    weight = rows_of_normals(4, 49152, 576, dtype=dtype)
    product = jax.jit(rows_matmul)
    assert_row_invariant(
        lambda x: product(x, weight),
        rows_of_normals(5, 64, 576, dtype=dtype),
        counts=(1, 2, 7, 64),
        least=least_rows(weight),
    )
