"""What every command does at its edges: exit codes, error lines and progress on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfjax.options import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

OK = 0
FAILED = 1
USAGE = 2
CANCELLED = 130


EXPECTED = (
    ("tfjax.checkpoints.errors", "CheckpointError"),
    ("tfjax.engine.drafters.loading", "UnusableDrafter"),
    ("tfjax.engine.load", "NotExact"),
    ("tfjax.engine.memory", "DoesNotFit"),
    ("tfjax.models.config", "ConfigError"),
    ("tfjax.text.pieces", "UnsupportedTokenizer"),
)
"""Errors of a model or machine that cannot be used; their message tells the user all there is to know."""


class CommandError(Exception):
    """A command that cannot do its work. The message is all that the user needs; no traceback is shown."""


def run_command(name: str, action: Callable[[], int]) -> int:
    """Runs a command and turns how it ended into an exit code: 0 fine, 1 failed, 2 usage, 130 cancelled.

    An error that nobody foresaw keeps its traceback.
    """
    try:
        return action()
    except ConfigError as error:
        return _fail(name, error, USAGE)
    except BrokenPipeError:
        return _reader_left()
    except KeyboardInterrupt:
        return CANCELLED
    except Exception as error:
        if not _is_expected(error):
            raise
        return _fail(name, error, FAILED)


def _fail(name: str, error: Exception, code: int) -> int:
    print(f"{name}: error: {error}", file=sys.stderr)
    return code


def _reader_left() -> int:
    # Python flushes stdout once more at exit and would complain there.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _is_expected(error: Exception) -> bool:
    # Compared by name: importing the modules would take seconds, and where they were not imported they did not raise.
    names = {(kind.__module__, kind.__name__) for kind in type(error).__mro__}
    return isinstance(error, CommandError | OSError) or not names.isdisjoint(EXPECTED)


class PhaseLines:
    """Progress as plain lines: a phase's name when it starts, and its seconds when it is over, if it took any.

    Used as a callable (phase, fraction done).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._phase: str | None = None
        self._since = 0.0

    def __call__(self, phase: str, fraction: float) -> None:
        if phase != self._phase:
            self.close()
            self._phase, self._since = phase, self._clock()
            print(f"tfjax: {phase}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the last phase."""
        if self._phase is None:
            return
        took_s = round(self._clock() - self._since, 1)
        if took_s > 0:
            print(f"tfjax: {self._phase} took {took_s:.1f} s", file=sys.stderr, flush=True)
        self._phase = None


class PhaseBar:
    """Progress as a bar with the time of the phase that is shown. Used like PhaseLines."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._phase = "starting"
        self._task = bars.add_task(self._phase, total=1.0)

    def __call__(self, phase: str, fraction: float) -> None:
        if phase != self._phase:
            # Anew: a task that was complete keeps its time.
            self._phase = phase
            self._bars.reset(self._task, total=1.0, description=phase)
        self._bars.update(self._task, completed=fraction)


def phase_bars(console: Console) -> Progress:
    """A line of phase, bar and time; a long phase is cut and leaves the others their place."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    text = TextColumn(
        "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
    )
    return Progress(text, BarColumn(24), TimeElapsedColumn(), console=console, transient=True, expand=True)


@contextmanager
def progress_on_stderr() -> Iterator[Callable[[str, float], None]]:
    """Progress for the commands that wait for a model: a bar on a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty():
        lines = PhaseLines()
        try:
            yield lines
        finally:
            lines.close()
        return
    from rich.console import Console

    with phase_bars(Console(stderr=True)) as bars:
        yield PhaseBar(bars)
