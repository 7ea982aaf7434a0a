"""What a round costs on the host."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.lanes.harness import settings
from tests.lanes.yardstick import median_us
from tfjax.lanes.loop import Lanes
from tfjax.lanes.stream import Request, Stream
from tfjax.lanes.window import Result, Window

pytestmark = pytest.mark.alone


class InstantBackend:
    """Draws random tokens at no cost, so that what is timed is the loop alone."""

    def __init__(self, tokens: int) -> None:
        self.widths: Sequence[int] = (2, 4, 8, 16, 32, 64, 128)
        self.chunk_rows: Sequence[int] = (512,)
        self.window_ms: Mapping[int, float] = {width: 30.0 + width / 32 for width in self.widths}
        self.draws = random.Random(1).choices(range(tokens), k=1 << 16)
        self.at = 0
        self.drafts = 0

    def result(self, rows: int) -> Result:
        start = self.at
        self.at = (self.at + rows) % (len(self.draws) - self.widths[-1])
        return Result(self.draws[start : start + rows])

    def prefill_begin(self, stream: Stream) -> None: ...

    def prefill_step(self, stream: Stream, start: int, stop: int) -> None: ...

    def first(self, stream: Stream) -> Result:
        return self.result(1)

    def verify(self, windows: Sequence[Window]) -> Any:
        return windows

    def read(self, ticket: Any) -> Sequence[Result]:
        self.drafts += sum(window.rows - 1 for window in ticket)
        return [self.result(window.rows) for window in ticket]

    def keep(self, windows: Sequence[Window], kept: Sequence[int]) -> None: ...

    def release(self, stream: Stream) -> None: ...


class Deaf:
    def on_tokens(self, stream: Stream, tokens: Sequence[int], logprobs: Sequence[Any] | None) -> None: ...

    def on_finish(self, stream: Stream) -> None: ...


def round_us(streams: int, tokens: int = 40, rounds: int = 200) -> float:
    """Median microseconds (see `yardstick`) of a round of copy-drafting streams, of `tokens` different tokens."""
    backend = InstantBackend(tokens)
    numbers = settings(
        lanes=streams, context=4096, pages=streams * 300, page_rows=16, batch_streams=128, batch_rows=128
    )
    lanes = Lanes(backend, time.perf_counter, numbers, Deaf())
    source = random.Random(2)
    for number in range(streams):
        prompt = tuple(source.randrange(tokens) for _ in range(500))
        lanes.admit(Request(f"r{number}", prompt, 3000, least_match=4))
    for _ in range(2 * streams):
        lanes.round()
    taken = median_us(lanes.round, rounds)
    assert lanes.running == streams
    return taken


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [40, 3, 1])
def test_sixteen_streams_take_300_us(tokens: int) -> None:
    """From text that never repeats to text that does nothing else."""
    assert min(round_us(16, tokens) for _ in range(3)) <= 300


@pytest.mark.slow
def test_time_is_linear_in_streams() -> None:
    assert min(round_us(128) for _ in range(3)) <= 8 * 1.3 * min(round_us(16) for _ in range(3))


def test_sixteen_streams_take_no_more_than_a_busy_machine_explains() -> None:
    assert round_us(16, rounds=50) <= 1500
