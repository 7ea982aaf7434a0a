"""How many steps a run takes: as asked, or as many as fit into some minutes, decided once for a run."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjax.checkpoints.cache import write_atomically
from tfjax.train.small_loop import Pace
from tfjax.train.target_settings import DEFAULT_STEPS, Settings

TIMED_CALLS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """Of dispatches: the first, which compiles, and a later one's share of a step."""

    first_s: float
    step_s: float


def pace_of(settings: Settings, file: Path, measure: Callable[[], Timing]) -> Pace:
    """The pace of a run.

    Args:
        file: keeps what was decided by the clock, so that a resumed run has the same schedule.
        measure: times some steps; called for --minutes alone, and once for a run.
    """
    steps = settings.steps or DEFAULT_STEPS
    if settings.minutes is not None:
        steps = _kept(file) or _decide(settings.minutes, measure(), file)
    stride = settings.steps_per_call
    return Pace(
        steps=-(-steps // stride) * stride,
        steps_per_call=stride,
        save_every=-(-settings.save_every // stride) * stride,
        batch=settings.batch,
        seed=settings.seed,
        limit_s=settings.limit_s,
    )


def timed(call: Callable[[], Any], steps: int, clock: Callable[[], float] = time.monotonic) -> Timing:
    """Time dispatches of `steps` steps; `call` returns when its dispatch is done."""
    times = [clock()]
    for _ in range(1 + TIMED_CALLS):
        call()
        times.append(clock())
    first, *later = (after - before for before, after in itertools.pairwise(times))
    return Timing(first, statistics.median(later) / steps)


def _kept(file: Path) -> int | None:
    """The steps that an earlier call decided on."""
    try:
        steps = json.loads(file.read_text(encoding="utf-8"))["steps"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is damaged ({error}); remove {file.parent} to begin anew") from error
    return int(steps)


def _decide(minutes: float, timing: Timing, file: Path) -> int:
    steps = max(1, round(minutes * 60 / timing.step_s))
    content = {"steps": steps, "step_ms": round(1000 * timing.step_s, 3), "first_call_s": round(timing.first_s, 2)}
    write_atomically(file, (json.dumps(content, indent=1) + "\n").encode())
    return steps
