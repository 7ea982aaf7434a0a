"""The gates find what they are for, on operators of plain arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tfjax.kernels.contract.gates import Candidate, run_gate
from tfjax.kernels.contract.norms import Embedding
from tfjax.kernels.contract.problem import Problem, Style
from tfjax.kernels.contract.running import run
from tfjax.kernels.routes import Route

COUNTS = (1, 2, 5, 9)


def small(style: Style) -> Problem:
    return Embedding(8, style, small=True)


def sound(table: jax.Array, token: jax.Array, count: jax.Array) -> jax.Array:
    return table[token]


def by_neighbour(table: jax.Array, token: jax.Array, count: jax.Array) -> jax.Array:
    return table[jnp.roll(token, 1)]


def by_count(table: jax.Array, token: jax.Array, count: jax.Array) -> jax.Array:
    return table[token] * jnp.where(count == 5, 1 + 2.0**-7, 1).astype(table.dtype)


def rounded(table: jax.Array, token: jax.Array, count: jax.Array) -> jax.Array:
    return table[token].astype(jnp.float8_e5m2).astype(table.dtype)


def unwritten(table: jax.Array, token: jax.Array, count: jax.Array) -> jax.Array:
    return table[token].at[count - 1, -1].set(jnp.nan)


@pytest.mark.parametrize("gate", ["rows", "reference", "stress", "bounds"])
def test_a_sound_operator_passes(gate: str) -> None:
    assert run_gate(gate, small, Candidate(sound, sound), COUNTS).passed


@pytest.mark.parametrize(
    ("gate", "call", "told"),
    [
        ("rows", by_neighbour, "row 1 at place 1 of 2"),
        ("rows", by_count, "of 5 rows"),
        ("rows", unwritten, "alone is not finite"),
        ("reference", rounded, "rows"),
        ("stress", rounded, "least margin"),
        ("bounds", unwritten, "an element was not"),
    ],
)
def test_a_fault_turns_its_gate_red(gate: str, call: Any, told: str) -> None:
    outcome = run_gate(gate, small, Candidate(call, call), COUNTS)
    assert not outcome.passed
    assert told in outcome.detail


def test_other_tiles_are_held_to_the_same_bits() -> None:
    outcome = run_gate("rows", small, Candidate(sound, None, [(16, "tiles of another kind", rounded)]), COUNTS)
    assert not outcome.passed
    assert "tiles of another kind" in outcome.detail


def test_a_write_outside_is_counted() -> None:
    class Straying(Embedding):
        def step(self, call: Any, data: Any, arranged: Any) -> Any:
            outputs, _ = super().step(call, data, arranged)
            return outputs, jnp.int32(3)

    outcome = run_gate("bounds", lambda style: Straying(8, style, small=True), Candidate(sound, sound), COUNTS)
    assert not outcome.passed
    assert "3 places" in outcome.detail


def test_the_reference_route_of_one_kernel() -> None:
    report = run(["embed_rows"], route=Route.REFERENCE, say=lambda line: None, counts=COUNTS)
    assert report.green
    assert {result.gate for result in report.gates if result.passed} == {"rows", "reference", "stress"}
    assert "1 in part" in report.summary
    assert any("writes no memory" in line for line in report.lines())


# The interpreter multiplies by numpy, which warns of the poison that no result may show.
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("layer_matmul", "layer_glu", "sum_norm", "embed_rows", "rope_write", "window_attention"),
        *("grouped_matmul", "grouped_glu", "conv_step", "choose_experts", "expert_sum", "keyed_draw"),
    ],
)
@pytest.mark.timeout(400)
def test_the_interpreter_passes_and_finds_the_faults(name: str) -> None:
    report = run([name], say=lambda line: None)
    assert report.green, "\n".join(report.lines())
    assert {result.gate for result in report.gates if result.passed} == {"reference", "stress", "bounds"}
    assert sum(control.red is True for control in report.controls) >= 2
