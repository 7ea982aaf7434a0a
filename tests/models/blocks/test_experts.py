from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.typing import NDArray

from tests.row_invariance import assert_row_invariant, bits, rows_of_normals
from tfjax.models.blocks.experts import ExpertsConfig, ExpertsMLP, Router

CONFIG = ExpertsConfig(count=8, picked=3, inner=16, biased=True, normalised=True, scale=1.5)
HIDDEN, ROWS = 24, 200
FORMS = [
    CONFIG,
    replace(CONFIG, biased=False),
    replace(CONFIG, normalised=False),
    replace(CONFIG, scale=1.0, picked=1),
    replace(CONFIG, count=5),
    replace(CONFIG, count=3),
]


def router(config: ExpertsConfig, dtype: Any = jnp.float32) -> Router:
    made = Router(HIDDEN, config, dtype)
    made.weight = nnx.Param(jnp.asarray(rows_of_normals(1, config.count, HIDDEN) * 0.3, dtype))
    if made.bias is not None:
        made.bias = nnx.Param(jnp.asarray(rows_of_normals(2, config.count) * 0.4))
    return made


def wanted(made: Router, x: NDArray[Any], *, biased_weight: bool = False) -> tuple[NDArray[Any], NDArray[Any]]:
    """The published rule in float64. `biased_weight` is the mistake of weighting by the biased score."""
    c = made.config
    score = 1 / (1 + np.exp(-(x.astype(np.float64) @ np.asarray(made.weight[...], np.float64).T)))
    choosing = score if made.bias is None else score + np.asarray(made.bias[...], np.float64)
    chosen = np.argsort(-choosing, -1, kind="stable")[:, : c.picked]
    weight = np.take_along_axis(choosing if biased_weight else score, chosen, -1)
    if c.normalised:
        weight = weight / (weight.sum(-1, keepdims=True) + 1e-6)
    return chosen, weight * c.scale


@pytest.mark.parametrize("config", FORMS)
def test_router_follows_the_published_rule(config: ExpertsConfig) -> None:
    x = rows_of_normals(0, ROWS, HIDDEN)
    made = router(config)
    chosen, weight = jax.jit(made)(x)
    expected_chosen, expected = wanted(made, x)
    assert np.array_equal(chosen, expected_chosen)
    np.testing.assert_allclose(weight, expected, rtol=1e-5)


def test_a_bias_used_as_weight_or_not_at_all_would_be_seen() -> None:
    x = rows_of_normals(0, ROWS, HIDDEN)
    made = router(CONFIG)
    chosen, weight = jax.jit(made)(x)
    assert not np.allclose(weight, wanted(made, x, biased_weight=True)[1], rtol=0.01)
    made.bias = None
    assert not np.array_equal(chosen, wanted(made, x)[0])


def test_the_sum_that_weights_are_divided_by_is_never_zero() -> None:
    made = router(CONFIG)
    made.weight = nnx.Param(jnp.full((CONFIG.count, HIDDEN), -1e4))
    _, weight = made(jnp.ones((2, HIDDEN)))
    assert np.array_equal(weight, np.zeros((2, 3)))


def test_the_lower_expert_wins_a_tie() -> None:
    made = router(replace(CONFIG, biased=False))
    made.weight = nnx.Param(jnp.zeros((CONFIG.count, HIDDEN)))
    chosen, _ = made(jnp.ones((2, HIDDEN)))
    assert np.asarray(chosen).tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, count=5), replace(CONFIG, count=3)])
def test_a_routers_rows_do_not_depend_on_others(config: ExpertsConfig) -> None:
    made, x = router(config, jnp.bfloat16), rows_of_normals(0, 33, HIDDEN).astype(jnp.bfloat16)
    run = jax.jit(lambda x: jnp.concatenate([part.astype(jnp.float32) for part in made(x)], -1))
    assert_row_invariant(run, x, counts=(1, 2, 3, 5, 7, 16, 17, 33))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_block_is_the_weighted_sum_of_its_experts(dtype: Any) -> None:
    made = ExpertsMLP(HIDDEN, CONFIG, dtype)
    made.router = router(CONFIG, dtype)
    made.gate_up = nnx.Param(jnp.asarray(rows_of_normals(3, 8, 32, HIDDEN) * 0.3, dtype))
    made.down = nnx.Param(jnp.asarray(rows_of_normals(4, 8, HIDDEN, 16) * 0.3, dtype))
    x = jnp.asarray(rows_of_normals(0, 30, HIDDEN), dtype)
    chosen, weight = (np.asarray(part) for part in made.router(x))
    gate_up, down = (np.asarray(part[...], np.float64) for part in (made.gate_up, made.down))
    total = np.zeros(x.shape)
    for row, rank in np.ndindex(chosen.shape):
        gate, up = np.split(gate_up[chosen[row, rank]] @ np.asarray(x[row], np.float64), 2)
        total[row] += weight[row, rank] * (down[chosen[row, rank]] @ (gate / (1 + np.exp(-gate)) * up))
    found = jax.jit(made)(x)
    assert found.dtype == dtype
    loose = 1e-5 if dtype == jnp.float32 else 0.02
    np.testing.assert_allclose(np.asarray(found, np.float64), total, rtol=loose, atol=loose)
    assert_row_invariant(jax.jit(made), np.asarray(x), counts=(1, 2, 7, 30))
    assert made.router.bias is not None
    assert made.router.bias[...].dtype == jnp.float32, "rounding it would change choices"


def test_parameters_that_are_rounded_otherwise_change_bits() -> None:
    """The control of the comparison of bits."""
    made = router(CONFIG)
    x = rows_of_normals(0, 4, HIDDEN)
    before = bits(made(x)[1])
    made.weight = nnx.Param(made.weight[...].astype(jnp.bfloat16).astype(jnp.float32))
    assert not np.array_equal(bits(made(x)[1]), before)
