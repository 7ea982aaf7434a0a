"""A lane loop's rounds as text: what was asked, verified, kept and sent, round by round, on a clock that is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.lanes.drafted_harness import DraftedRun
from tests.lanes.harness import Run
from tfjax.lanes.window import Window


class Trace:
    """Writes down what a run does from now on."""

    def __init__(self, run: Run) -> None:
        self.lines: list[str] = []
        self._run = run
        backend: Any = run.backend
        self._watch(backend, "prefill_begin", lambda stream: f"start {stream.request.id} in lane {stream.lane}")
        self._watch(
            backend, "prefill_step", lambda stream, start, stop: f"prompt {stream.request.id} {start}..{stop - 1}"
        )
        self._watch(backend, "verify", lambda windows: f"verify {', '.join(map(_window, windows))}")
        self._watch(backend, "keep", lambda windows, kept: f"keep {_counts(windows, kept)}")
        self._watch(run.recorder, "on_tokens", lambda stream, tokens, _: f"send {stream.request.id}: {_row(tokens)}")
        self._watch(run.recorder, "on_finish", lambda stream: f"end {stream.request.id}: {stream.reason}")
        if isinstance(run, DraftedRun):
            self._watch(run.drafter, "hold", lambda asks: f"draft {_asks(asks)}")

    def round(self) -> bool:
        """One round of the loop, under its own heading."""
        self.lines.append(f"{1000 * self._run.clock():.1f} ms")
        more = self._run.lanes.round()
        if not more:
            self.lines.pop()
        return more

    def finish(self, most_rounds: int = 400) -> str:
        """Runs to the end and gives the text: a line of totals per stream, its tokens, then the rounds."""
        for _ in range(most_rounds):
            if not self.round():
                break
        assert self._run.lanes.idle, "the loop does not come to an end"
        self._run.check_no_leak()
        head = [f"took {1000 * self._run.clock():.1f} ms, {self._run.lanes.rounds} rounds"]
        for name, stream in self._run.streams.items():
            counts = stream.counts
            head.append(
                f"counts {name}: rounds {counts.rounds}, drafted {counts.drafted}, accepted {counts.accepted}, "
                f"kept {counts.kept}, aside {counts.stood_aside_rounds}, probes {counts.probes}"
            )
            head.append(f"tokens {name}: {_row(stream.context[len(stream.request.prompt) :])}")
        return "\n".join([*head, *self.lines])

    def _watch(self, target: Any, name: str, words: Callable[..., str]) -> None:
        inner = getattr(target, name)

        def call(*arguments: Any) -> Any:
            self.lines.append(f"  {words(*arguments)}")
            return inner(*arguments)

        setattr(target, name, call)


def _window(window: Window) -> str:
    pending = "?" if window.pending is None else window.pending
    drafts = _row(window.drafts) + (f" ({window.forced} forced)" if window.forced else "")
    drafts = f"{window.held} held" if window.held else drafts
    return f"{window.stream.request.id}@{window.position} [{pending}{' + ' if drafts else ''}{drafts}]"


def _counts(windows: Sequence[Window], kept: Sequence[int]) -> str:
    return ", ".join(
        f"{window.stream.request.id} {count} of {window.rows}" for window, count in zip(windows, kept, strict=True)
    )


def _asks(asks: Sequence[Any]) -> str:
    return ", ".join(f"{ask.stream.request.id} {ask.depth}" for ask in asks)


def _row(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))
