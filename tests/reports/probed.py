"""A scripted model that looks at its own cache after every commit."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reports.stage import ScriptedModel
from tfjax.lanes.stream import Stream
from tfjax.lanes.window import Window


class ProbedModel(ScriptedModel):
    """Compares what the cache holds with what the serial run would hold there, after each round of each stream.

    Attributes:
        commits: comparisons made after rounds.
        wrong: what a cache held instead.
        at_release: what each stream's cache held when its lane was given back, in order.
    """

    def __init__(self, pages: int = 600) -> None:
        super().__init__(pages=pages)
        self.commits = 0
        self.wrong: list[tuple[int, ...]] = []
        self.at_release: list[tuple[int, ...]] = []

    def keep(self, windows: Sequence[Window], kept: Sequence[int]) -> None:
        super().keep(windows, kept)
        for window in windows:
            held = self.state_probe(window.stream)
            if held != self._serial(window.stream, len(held)):
                self.wrong.append(held)
            self.commits += 1

    def release(self, stream: Stream) -> None:
        self.at_release.append(self.state_probe(stream))
        super().release(stream)

    @staticmethod
    def _serial(stream: Stream, length: int) -> tuple[int, ...]:
        """The first `length` tokens of prompt and serial reply."""
        prompt = stream.request.prompt
        context = list(prompt)
        while len(context) < length:
            context.append(stream.request.sampling(context, len(prompt)))
        return tuple(context[:length])
