"""Progress of a training run: a bar with the loss on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 10.0

type Report = Callable[[dict[str, float]], None]
type Words = Callable[[dict[str, float]], str]


def in_words(point: dict[str, float]) -> str:
    """The figures to watch."""
    return f"loss {point['loss']:.3f}, agreement {point['agreement']:.3f}"


class Lines:
    """A line at most every ten seconds, and one at the end."""

    def __init__(
        self, steps: int, console: Console, clock: Callable[[], float] = time.monotonic, words: Words = in_words
    ) -> None:
        self._words = words
        self._steps = steps
        self._console = console
        self._clock = clock
        self._due_s = clock()

    def __call__(self, point: dict[str, float]) -> None:
        if self._clock() < self._due_s and point["step"] < self._steps:
            return
        self._due_s = self._clock() + LINE_EVERY_S
        self._console.out(f"tfjax: step {point['step']:.0f} of {self._steps}, {self._words(point)}", highlight=False)


@contextmanager
def training_progress(steps: int, words: Words = in_words) -> Iterator[Report]:
    """What the loop reports to; `words` says what a point of the curve shows."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(steps, console, words=words)
        return
    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("compiling", total=steps)

        def report(point: dict[str, float]) -> None:
            bars.update(task, completed=point["step"], description=words(point))

        yield report
