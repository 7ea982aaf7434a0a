from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.row_invariance import COUNTS, FEW, assert_row_invariant, bits, rows_of_normals, spread
from tfjax.kernels.rms_norm import rms_norm

DTYPES = [np.float32, ml_dtypes.bfloat16]


def reference(x: Any, weight: Any, eps: float) -> Any:
    wide = x.astype(np.float64)
    unit = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + eps)
    return (unit.astype(x.dtype) * weight).astype(x.dtype)


def test_equals_the_reference() -> None:
    x, weight = spread(rows_of_normals(0, 6, 576)), rows_of_normals(1, 576)
    np.testing.assert_allclose(
        rms_norm(jnp.asarray(x), jnp.asarray(weight), 1e-5), reference(x, weight, 1e-5), rtol=1e-5
    )


def test_eps_stands_within_the_root() -> None:
    x = jnp.full((2, 4), 1e-3)
    np.testing.assert_allclose(rms_norm(x, jnp.ones(4), 1e-6), 1e-3 / np.sqrt(2e-6), rtol=1e-5)


def test_rounds_before_the_weight_is_applied() -> None:
    """In bfloat16: normalise in float32, round, multiply, round again."""
    x = rows_of_normals(2, 40, 96, dtype=ml_dtypes.bfloat16)
    weight = rows_of_normals(3, 96, dtype=ml_dtypes.bfloat16)
    found = rms_norm(jnp.asarray(x), jnp.asarray(weight), 1e-5)
    assert found.dtype == jnp.bfloat16
    assert (bits(found) == bits(reference(x, weight, 1e-5))).mean() > 0.995


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [9, 64, 576, 960])
def test_rows_are_invariant(dtype: Any, width: int) -> None:
    weight = rows_of_normals(4, width, dtype=dtype)
    norm = jax.jit(lambda x: rms_norm(x, weight, 1e-5))
    rows = spread(rows_of_normals(5, 140, width, dtype=dtype))
    assert_row_invariant(norm, rows, counts=COUNTS if width == 576 else FEW)


def test_heads_are_invariant() -> None:
    """The last axis is normalised whatever stands before it."""
    weight = rows_of_normals(6, 64)
    norm = jax.jit(lambda x: rms_norm(x, weight, 1e-5))
    assert_row_invariant(norm, rows_of_normals(7, 140, 3, 64), counts=FEW)
