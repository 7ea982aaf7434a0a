"""The blocks of a suite: none begins that the time left does not suffice for, and what each gave is kept at once."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

type Write = Callable[[Mapping[str, Any]], object]
"""Told everything that was found so far, whenever something comes."""


class Blocks:
    """Runs blocks one after another; one that fails does not stop the others.

    Attributes:
        found: by block, in order.
        left_out: blocks that were not begun, and why.
        failed: blocks that ended with an error or whose comparison did not hold.
    """

    def __init__(
        self, seconds: float, write: Write = lambda found: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._write = clock, write
        self._end = clock() + seconds
        self.found: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}
        self.failed: list[str] = []

    @property
    def left_s(self) -> float:
        return self._end - self._clock()

    def run(
        self, name: str, expected_s: float, work: Callable[[], Any], kept: Callable[[Any], Any] = lambda made: made
    ) -> Any:
        """What the work gives, or None where it was left out or failed; that is told and kept.

        Args:
            expected_s: what it takes on an H200, at most.
            kept: what of the work's result is kept, in JSON's types.
        """
        if expected_s > self.left_s:
            self.leave_out(name, f"expected to take {expected_s:.0f} s and {max(0.0, self.left_s):.0f} s are left")
            return None
        try:
            made = work()
        except Exception as error:  # noqa: BLE001 - the other blocks still run
            self.failed.append(name)
            self.keep(name, {"error": f"{type(error).__name__}: {error}"[:2000]})
            print(f"{name} failed: {''.join(traceback.format_exception(error)[-4:])[-1500:]}", flush=True)
            return None
        self.keep(name, kept(made))
        return made

    def leave_out(self, name: str, reason: str) -> None:
        self.left_out[name] = reason
        print(f"{name} left out: {reason}", flush=True)
        self._write(self.as_dict())

    def keep(self, name: str, made: Any) -> None:
        """Keep it and write everything."""
        self.found[name] = made
        self._write(self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """All that was found, and what was not run where there is such."""
        more = {"left_out": self.left_out, "failed": self.failed}
        return self.found | {name: value for name, value in more.items() if value}
