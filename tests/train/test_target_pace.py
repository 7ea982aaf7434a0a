"""How many steps a run takes, and that the clock decides once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjax.train.target_pace import Timing, pace_of, timed
from tfjax.train.target_settings import DEFAULT_STEPS, Settings, parser, read_settings


def settings(*flags: str) -> Settings:
    return read_settings(parser().parse(["--output", "o", *flags])).for_device("cpu")


def never() -> Timing:
    raise AssertionError("nothing is to be measured")


def test_steps_as_asked_up_to_whole_dispatches(tmp_path: Path) -> None:
    pace = pace_of(settings("--steps", "9", "--steps-per-call", "4", "--save-every", "5"), tmp_path / "plan", never)
    assert (pace.steps, pace.steps_per_call, pace.save_every) == (12, 4, 8)
    assert pace_of(settings(), tmp_path / "plan", never).steps == DEFAULT_STEPS


def test_minutes_become_steps_once(tmp_path: Path) -> None:
    asked = settings("--minutes", "2", "--seed", "5", "--limit-s", "7")
    pace = pace_of(asked, tmp_path / "plan", lambda: Timing(30.0, 0.25))
    assert (pace.steps, pace.batch, pace.seed, pace.limit_s) == (480, 8, 5, 7)
    assert pace_of(asked, tmp_path / "plan", never) == pace


def test_at_least_one_dispatch(tmp_path: Path) -> None:
    assert pace_of(settings("--minutes", "1"), tmp_path / "plan", lambda: Timing(1.0, 1e6)).steps == 2


def test_a_damaged_plan_is_named(tmp_path: Path) -> None:
    (tmp_path / "plan").write_text("{}")
    with pytest.raises(ValueError, match=r"plan is damaged .* remove"):
        pace_of(settings("--minutes", "2"), tmp_path / "plan", never)


def test_the_first_dispatch_does_not_count() -> None:
    times = iter([0.0, 50.0, 54.0, 60.0, 65.0])
    calls: list[int] = []
    assert timed(lambda: calls.append(1), 10, lambda: next(times)) == Timing(50.0, 0.5)
    assert len(calls) == 4
