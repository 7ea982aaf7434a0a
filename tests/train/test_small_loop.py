"""The loop on a scripted step: strides, checkpoints, resuming, the limit, and one dispatch ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfjax.train.small_data import Packed, rows_of_steps
from tfjax.train.small_loop import Curve, Pace, train
from tfjax.train.small_step import Metrics

DATA = Packed(*(np.zeros((6, 4), np.int32) for _ in Packed._fields))


class Memory:
    """Keeps states as the checkpoints do."""

    def __init__(self, kept: tuple[int, Any, Curve] | None = None) -> None:
        self.kept = kept
        self.saves: list[int] = []
        self.curve_ends: list[float] = []

    def restore(self, like: Any) -> tuple[int, Any, Curve] | None:
        return self.kept

    def save(self, step: int, state: Any, curve: Curve) -> None:
        self.kept = step, state, list(curve)
        self.saves.append(step)
        self.curve_ends += [point["step"] for point in curve[-1:]]


class ScriptedStep:
    """The state is the list of rows that were taken; the loss is their number."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, state: Any, models: Any, data: Packed, rows: Any) -> tuple[Any, Metrics]:
        self.calls += 1
        state = [*state, *np.asarray(rows).tolist()]
        losses = np.arange(len(state) - len(rows), len(state), dtype=np.float64)
        return state, Metrics(losses, losses, losses, losses)


def pace(**changed: Any) -> Pace:
    return Pace(**{"steps": 12, "steps_per_call": 2, "save_every": 4, "batch": 3, "seed": 5, **changed})


def run(memory: Memory, pace: Pace, report: Any = lambda point: None, step: Any = None, clock: Any = None) -> Any:
    more = {} if clock is None else {"clock": clock}
    return train(step or ScriptedStep(), [], None, DATA, pace, memory, report, **more)  # type: ignore[arg-type]


def test_it_takes_every_step_once_in_order() -> None:
    outcome = run(Memory(), pace())
    assert outcome.state == rows_of_steps(5, 6, 3, 0, 12).tolist()
    assert (outcome.step, outcome.resumed_from) == (12, 0)


def test_the_curve_has_the_mean_of_each_dispatch() -> None:
    points: list[dict[str, float]] = []
    outcome = run(Memory(), pace(), points.append)
    assert [(point["step"], point["loss"]) for point in outcome.curve] == [(2 * i + 2, 2 * i + 0.5) for i in range(6)]
    assert points == outcome.curve


def test_states_are_kept_on_the_way_and_at_the_end_once() -> None:
    memory = Memory()
    run(memory, pace())
    assert memory.saves == memory.curve_ends == [4, 8, 12]
    assert memory.kept is not None
    assert [point["step"] for point in memory.kept[2]] == [2, 4, 6, 8, 10, 12]


def test_it_goes_on_where_it_was_left() -> None:
    whole, cut = Memory(), Memory()
    expected = run(whole, pace())
    run(cut, pace(steps=8))
    outcome = run(cut, pace())
    assert outcome.resumed_from == 8
    assert outcome.state == expected.state
    assert outcome.curve == expected.curve


def test_a_finished_run_takes_no_further_step() -> None:
    memory, step = Memory(), ScriptedStep()
    run(memory, pace())
    outcome = run(memory, pace(), step=step)
    assert (step.calls, outcome.step, outcome.resumed_from) == (0, 12, 12)


def test_the_limit_ends_it_between_dispatches_and_keeps_the_state() -> None:
    memory = Memory()
    times = iter([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    outcome = run(memory, pace(limit_s=2.5), clock=lambda: next(times))
    assert outcome.step == 6
    assert memory.saves == [4, 6]
    assert run(memory, pace()).state == rows_of_steps(5, 6, 3, 0, 12).tolist()


def test_figures_are_read_one_dispatch_later() -> None:
    step = ScriptedStep()
    seen: list[tuple[int, float]] = []
    run(Memory(), pace(save_every=100), lambda point: seen.append((step.calls, point["step"])), step)
    assert seen == [(2, 2), (3, 4), (4, 6), (5, 8), (6, 10), (6, 12)]


def test_a_loss_that_is_no_number_ends_the_run_and_is_not_kept() -> None:
    def broken(state: Any, models: Any, data: Packed, rows: Any) -> tuple[Any, Metrics]:
        bad = np.array([1.0, np.nan])
        return state, Metrics(bad, bad, bad, bad)

    memory = Memory()
    with pytest.raises(FloatingPointError, match="the loss is nan at step 2; take a lower --learning-rate"):
        run(memory, pace(), step=broken)
    assert memory.saves == []
