from __future__ import annotations

from typing import Any

import pytest

from tests.lanes.harness import settings
from tfjax.lanes.roster import Roster
from tfjax.lanes.stream import Request


def roster(**changes: Any) -> Roster:
    return Roster(settings(**{"lanes": 2, "pages": 8, **changes}))


def request(tokens: int = 8) -> Request:
    return Request("r", (1,), tokens - 1)


def test_streams_start_in_order_while_lanes_are_free() -> None:
    here = roster()
    streams = [here.add(request(), 1.0) for _ in range(3)]
    assert [here.start_next(2.0), here.start_next(3.0), here.start_next(4.0)] == [streams[0], streams[1], None]
    assert [streams[0].lane, streams[1].lane, streams[2].lane] == [0, 1, -1]
    assert (streams[1].times.admitted_s, streams[1].times.started_s) == (1.0, 3.0)


def test_a_lane_is_given_again() -> None:
    here = roster(lanes=1)
    first, second = here.add(request(), 0.0), here.add(request(), 0.0)
    assert here.start_next(0.0) is first
    here.remove(first)
    assert here.start_next(0.0) is second
    assert second.lane == 0


def test_the_first_waits_for_pages_and_nobody_overtakes_it() -> None:
    here = roster()
    large, larger, small = here.add(request(20), 0.0), here.add(request(16), 0.0), here.add(request(4), 0.0)
    assert here.start_next(0.0) is large
    assert here.start_next(0.0) is None
    here.remove(large)
    assert here.start_next(0.0) is larger
    assert here.start_next(0.0) is small


def test_nobody_starts_while_a_stream_is_paused() -> None:
    here = roster()
    first = here.add(request(), 0.0)
    here.add(request(), 0.0)
    here.start_next(0.0)
    first.paused = True
    assert here.start_next(0.0) is None
    first.paused = False
    assert here.start_next(0.0) is not None


def test_filling_and_decoding_leave_out_the_paused() -> None:
    here = roster()
    filling, decoding = here.add(request(), 0.0), here.add(request(), 0.0)
    here.start_next(0.0)
    here.start_next(0.0)
    decoding.context.append(5)
    assert (here.filling, here.decoding) == ([filling], [decoding])
    filling.paused = decoding.paused = True
    assert (here.filling, here.decoding) == ([], [])


@pytest.mark.parametrize("started", [True, False])
def test_what_is_removed_gives_everything_back(started: bool) -> None:
    here = roster()
    stream = here.add(request(), 0.0)
    if started:
        here.start_next(0.0)
    here.remove(stream)
    assert here.memory.pool.free == 8
    assert not here.running
    assert not here.waiting


def test_the_limit_is_the_reply_or_the_context() -> None:
    here = roster(context=20)
    assert here.add(request(12), 0.0).limit == 12
    assert here.add(request(99), 0.0).limit == 20
