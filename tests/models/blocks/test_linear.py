from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tests.row_invariance import bits, rows_of_normals
from tfjax.models.blocks.linear import Linear


def made(*, bias: bool, dtype: type) -> Linear:
    layer = Linear(24, 16, bias=bias, dtype=dtype)
    layer.weight[...] = jnp.asarray(rows_of_normals(0, 16, 24), dtype)
    if layer.bias is not None:
        layer.bias[...] = jnp.asarray(rows_of_normals(1, 16), dtype)
    return layer


@pytest.mark.parametrize("bias", [True, False])
def test_is_a_product_and_a_bias(bias: bool) -> None:
    layer, x = made(bias=bias, dtype=jnp.float32), rows_of_normals(2, 5, 24)
    wanted = x @ rows_of_normals(0, 16, 24).T + (rows_of_normals(1, 16) if bias else 0)
    np.testing.assert_allclose(layer(jnp.asarray(x)), wanted, atol=1e-5)


def test_is_rounded_once() -> None:
    """In bfloat16 the bias is added to the float32 sum."""
    layer, x = made(bias=True, dtype=jnp.bfloat16), jnp.asarray(rows_of_normals(3, 50, 24), jnp.bfloat16)
    assert layer.bias is not None
    exact = np.asarray(x, np.float64) @ np.asarray(layer.weight[...], np.float64).T
    exact = exact + np.asarray(layer.bias[...], np.float64)
    found = layer(x)
    assert found.dtype == jnp.bfloat16
    assert np.array_equal(bits(found), bits(jnp.asarray(exact, jnp.float32).astype(jnp.bfloat16)))
