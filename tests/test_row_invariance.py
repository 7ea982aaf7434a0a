"""The harness finds operators that are known to be bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.row_invariance import FEW, assert_row_invariant, rows_of_normals, violation

ROWS = rows_of_normals(0, 140, 576)
WEIGHT = rows_of_normals(1, 48, 576)


def mean_norm(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


def unpadded_product(x: jax.Array) -> jax.Array:
    return x @ WEIGHT.T


def reduced_softmax(x: jax.Array) -> jax.Array:
    weight = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return weight / jnp.sum(weight, -1, keepdims=True)


def centred_over_rows(x: jax.Array) -> jax.Array:
    return x - x.mean(0)


def touched_by_others(x: jax.Array) -> jax.Array:
    """Adds an exact zero that is none beside a row which is not finite."""
    return x + 0 * x.sum(0)


def depends_on_place(x: jax.Array) -> jax.Array:
    return x + jnp.arange(x.shape[0])[:, None] // 100


@pytest.mark.parametrize(
    "operator",
    [mean_norm, unpadded_product, reduced_softmax, centred_over_rows, touched_by_others, depends_on_place],
)
def test_a_bad_operator_is_found(operator: Callable[..., Any]) -> None:
    assert violation(jax.jit(operator), ROWS) is not None


def test_a_leak_is_traced_to_the_rows_beside() -> None:
    found = violation(jax.jit(touched_by_others), ROWS, counts=FEW)
    assert found is not None
    assert (found.rows, found.beside) == (2, "NaN")


def test_a_row_by_row_operator_passes() -> None:
    assert_row_invariant(jax.jit(lambda x: jnp.abs(x) * 3 + 1), ROWS, counts=FEW)
    assert_row_invariant(lambda x, i: np.where(i[:, None] > 3, x, -x), ROWS, np.arange(140), counts=FEW)
