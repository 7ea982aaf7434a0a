from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.rows_buffer import RowsBuffer, unpack
from tfjax.engine.step import Bucket, State, Step, rules_and_lanes, rules_of
from tfjax.kernels.draw import DrawRules
from tfjax.kernels.routes import Route, Unsupported
from tfjax.models.rows import Forward

COPIED = ("temperature", "top_k", "top_p", "min_p", "presence", "frequency", "repetition", "prompt_end")
FLAGS = ("biased", "logprobs")


def test_rules_are_those_of_the_draws() -> None:
    """Every field has its own values; a draw belongs one position behind its row."""
    buffer = RowsBuffer(3)
    for number, name in enumerate(COPIED, start=1):
        buffer[name][:] = [number, number + 20, 99]
    for name in FLAGS:
        buffer[name][:] = [0, 1, 1]
    buffer["banned_until"][:] = [11, 42, 99]
    buffer["seed_low"][:], buffer["seed_high"][:] = [7, 8, 9], [2**32 - 1, 0, 1]
    rules = rules_of(unpack(jnp.asarray(buffer.matrix)), jnp.array([10, 40]), 2)
    assert rules.position.tolist() == [11, 41]
    for number, name in enumerate(COPIED, start=1):
        assert getattr(rules, name).tolist() == [number, number + 20]
    for name in FLAGS:
        assert getattr(rules, name).tolist() == [False, True]
    assert rules.stops_banned.tolist() == [False, True]
    assert rules.seed.tolist() == [[7, 2**32 - 1], [8, 0]]
    assert set(DrawRules._fields) == {"position", "seed", "stops_banned", *COPIED, *FLAGS}


def test_a_draw_has_the_lane_and_the_position_of_its_row() -> None:
    buffer = RowsBuffer(4)
    buffer["lane"][:], buffer["position"][:] = [5, 6, 7, 8], [50, 60, 70, 80]
    buffer["draw_row"][:] = [3, 1, 0, 0]
    buffer["top_k"][:] = [1, 2, 3, 4]
    rules, lane = rules_and_lanes(jnp.asarray(buffer.matrix), 2)
    assert lane.tolist() == [8, 6]
    assert rules.position.tolist() == [81, 61]
    assert rules.top_k.tolist() == [1, 2]


class Telling(nnx.Module):
    """A model whose features are the taps that it was asked for."""

    def __init__(self) -> None:
        self.head = nnx.Param(jnp.ones((32, 8)))

    def logits(self, hidden: jax.Array) -> jax.Array:
        return hidden @ self.head[...].T

    def __call__(self, cache: Any, rows: Any, *, tile_rows: int, taps: tuple[int, ...]) -> Forward:
        return Forward(jnp.ones((rows.token.shape[0], 8)), cache, jnp.array(taps) if taps else None)


def test_taps_reach_the_model_in_their_order() -> None:
    bucket, table = Bucket(2, 2, 2), jnp.zeros((2, 2), jnp.int32)
    matrix = RowsBuffer(2).matrix
    for taps in ((5, 2, 7), ()):
        step = Step(Telling(), taps)
        state = State((), empty_tables(2, 32, 128))
        step.compile(bucket, state, table)
        stepped = step(bucket, state, np.zeros(2, np.int32), matrix, table)
        assert (None if stepped.features is None else stepped.features.tolist()) == (list(taps) or None)
        assert stepped.logits.shape == (2, 32)


def test_the_route_is_the_draws() -> None:
    """The device route has no block for 32 tokens, and says so."""
    bucket, table, state = Bucket(2, 2, 2), jnp.zeros((2, 2), jnp.int32), State((), empty_tables(2, 32, 128))
    with pytest.raises(Unsupported, match="vocabulary of 32"):
        Step(Telling(), route=Route.PALLAS_GPU).compile(bucket, state, table)


def test_few_arrays_cross_the_draws_condition() -> None:
    """Logits, what the host says and the lanes' tables: each field by itself would be a small kernel."""
    bucket, table, state = Bucket(2, 2, 2), jnp.zeros((2, 2), jnp.int32), State((), empty_tables(2, 32, 128))
    step = Step(Telling())
    token = jnp.zeros(2, jnp.int32)
    traced = jax.make_jaxpr(lambda *arguments: step.forward(bucket, *arguments))(
        step.parameters, state, token, jnp.asarray(RowsBuffer(2).matrix), table
    )
    conditions = [equation for equation in traced.eqns if equation.primitive.name == "cond"]
    assert [len(condition.invars) for condition in conditions] == [1 + 2 + len(state.tables)]
