"""The first rows of a stacked model beside those of the reference operators, with faults in either."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.models.tiny import TINY
from tests.models.tiny_stacked import loaded_stacked
from tfjax.engine import load, step
from tfjax.engine.buckets import kernel_plan
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.nearness import Reference, how_far
from tfjax.engine.probe import ProbeReport
from tfjax.engine.step import Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel

MEMORY = MemoryPlan(128, False, 2, 8, cache_bytes=0, weight_bytes=0, budget_bytes=0)
MODEL = loaded_stacked(TINY, jnp.bfloat16)


EXACT = ProbeReport("row-invariant", 1, ("one",), None)


def backend() -> TargetBackend:
    """With the narrowest bucket compiled, which is the one that is looked at."""
    made = TargetBackend(MODEL, Step(MODEL.module), kernel_plan(8), MEMORY)
    made.step.compile(made.plan.verify[0], made.state, made.page_table)
    return made


def reference(model: LoadedModel = MODEL) -> Reference:
    made = Reference(model, kernel_plan(8).verify[0])
    made.prepare()()
    return made


def test_equal_operators_are_near() -> None:
    assert how_far(backend(), reference()) == ""


def test_other_values_are_not() -> None:
    assert "of their length, 0.4 at most" in how_far(backend(), reference(loaded_stacked(TINY, jnp.bfloat16, seed=1)))


def test_a_later_forward_alone_may_be_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the rows are right then, and the others 0.6 away: a median over all would be 0.3."""
    module: Any = MODEL.module
    forward = type(module).__call__

    def wrong_later(self: Any, cache: Any, rows: Any, **named: Any) -> Any:
        done = forward(self, cache, rows, **named)
        return done._replace(hidden=jnp.where(rows.position[:, None] < 8, done.hidden, 1.6 * done.hidden))

    monkeypatch.setattr(type(module), "__call__", wrong_later)
    broken = backend()
    monkeypatch.undo()
    assert "0.4 at most" in how_far(broken, reference())


def test_what_is_not_finite_is_not_near(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = MODEL.module
    logits = type(module).logits
    monkeypatch.setattr(type(module), "logits", lambda self, hidden: logits(self, hidden).at[:, 3].set(jnp.nan))
    broken = backend()
    monkeypatch.undo()
    assert "by nan of their length" in how_far(broken, reference())


@pytest.mark.parametrize("row", [2, 3], ids=["greedy", "with noise"])
def test_a_draw_that_the_logits_do_not_give(monkeypatch: pytest.MonkeyPatch, row: int) -> None:
    draw = step.draw_as_read

    def other(logits: jax.Array, *rest: Any, **named: Any) -> Any:
        drawn = draw(logits, *rest, **named)
        return drawn._replace(token=drawn.token.at[row].set((drawn.token[row] + 1) % TINY.vocab))

    monkeypatch.setattr(step, "draw_as_read", other)
    broken = backend()
    monkeypatch.undo()
    assert "below the best one's, 0.001 at most" in how_far(broken, reference())


def test_the_loader_goes_on_without_kernels_that_are_far(monkeypatch: pytest.MonkeyPatch) -> None:
    made, refused = backend(), list[str]()

    def attempt(*given: Any) -> tuple[TargetBackend, ProbeReport]:
        for prepare in given[-1]:
            prepare()()
        return made, EXACT

    monkeypatch.setattr(load, "attempt", attempt)
    other = loaded_stacked(TINY, jnp.bfloat16, seed=1)
    assert load.start_kernels(other, MEMORY, lambda phase, share: None, (), refused) is None
    assert "kernels are not exact: logits differ from the reference operators'" in refused[0]
    assert load.start_kernels(MODEL, MEMORY, lambda phase, share: None, (), refused) == (made, EXACT)
