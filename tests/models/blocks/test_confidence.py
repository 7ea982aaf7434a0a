from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from flax import nnx

from tfjax.models.blocks.confidence import ConfidenceHead

X = np.random.default_rng(0).normal(0, 1, (4, 12)).astype(np.float32)
WEIGHT = np.random.default_rng(1).normal(0, 1, (1, 12)).astype(np.float32)


def head(temperatures: tuple[float, ...] = ()) -> ConfidenceHead:
    made = ConfidenceHead(12, temperatures)
    made.weight, made.bias = nnx.Param(jnp.asarray(WEIGHT)), nnx.Param(jnp.array([0.5]))
    return made


def chance(raw: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-raw))


def test_it_is_a_logistic_of_the_row() -> None:
    np.testing.assert_allclose(head()(jnp.asarray(X), 0), chance(X @ WEIGHT[0] + 0.5), rtol=1e-5)


def test_every_place_has_its_temperature() -> None:
    temperatures = (0.5, 2.0, 4.0, 8.0)
    expected = chance((X @ WEIGHT[0] + 0.5) / np.array(temperatures))
    np.testing.assert_allclose(head(temperatures)(jnp.asarray(X), jnp.arange(4)), expected, rtol=1e-5)
    np.testing.assert_allclose(head(temperatures)(jnp.asarray(X), 2)[2], expected[2], rtol=1e-5)


def test_it_is_float32_whatever_the_rows_are() -> None:
    rows = jnp.asarray(X, jnp.bfloat16)
    sure = head()(rows, 0)
    assert sure.dtype == jnp.float32
    np.testing.assert_allclose(sure, chance(np.asarray(rows, np.float32) @ WEIGHT[0] + 0.5), rtol=1e-5)


def test_rows_of_a_block_at_once() -> None:
    at_once = head()(jnp.asarray(X).reshape(2, 2, 12), jnp.arange(2))
    np.testing.assert_array_equal(np.asarray(at_once).reshape(-1), head()(jnp.asarray(X), 0))
