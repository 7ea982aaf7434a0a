"""What rounds that run ahead bring where the host takes as long as the device, in simulated time.

As on a GPU: a forward and a hold take a millisecond each whatever their rows, and so does the host to queue them.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean
from typing import Any

import pytest

from tests.lanes.drafted_harness import DraftedRun, settings
from tests.lanes.test_never_loses import LEAST_OF_EACH, LEAST_WHILE_LEARNING, SALTS, short_sighted
from tfjax.lanes.stream import Request, Stream

WINDOW_MS = {8: 1.1, 16: 1.15, 32: 1.2, 64: 1.4}
HOLD_MS = {streams: {depth: 0.9 + 0.02 * depth for depth in (1, 8)} for streams in (1, 16)}
QUEUE_MS = {"verify": 1.2, "hold": 0.9}
TOKENS = 400


@cache
def decode_ms(
    streams: int, lands: float, salt: int, *, drafts: bool = True, ahead: bool = True, from_position: int = 0
) -> float:
    """Simulated milliseconds until the replies of all streams are whole.

    `salt` decides which drafts land; none does before `from_position`.
    """

    def landing(stream: Stream, position: int) -> bool:
        return position >= from_position and hash((stream.lane, position, salt)) % 1000 < 1000 * lands

    target: dict[str, Any] = {"widths": tuple(WINDOW_MS), "window_ms": WINDOW_MS, "logprobs": False}
    run = DraftedRun(
        settings(lanes=16, context=600, pages=2600, run_ahead=ahead),
        "by_place",
        target={**target, "held_on_target": True, "lands": True},
        takes_ms=lambda streams, depth: 0.9 + 0.02 * depth,
        lands=landing,
        hold_ms=HOLD_MS,
    )
    asks = [
        Request(f"r{number}", (number, 1, 2, 3, 4), TOKENS, drafts=drafts, sampling=short_sighted(number))
        for number in range(streams)
    ]
    for owner, name in ((run.backend, "verify"), (run.drafter, "hold")):
        queue = getattr(owner, name)
        setattr(owner, name, lambda work, queue=queue, ms=QUEUE_MS[name]: (run.clock.advance_ms(ms), queue(work))[1])
    run.admit(*asks)
    run.finish()
    run.check_tokens(*asks)
    return 1000 * run.clock()


@pytest.mark.parametrize("lands", [0.0, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("streams", [1, 2, 4, 8, 16])
def test_none_is_slower_than_where_every_round_waits(streams: int, lands: float) -> None:
    ahead_ms = fmean(decode_ms(streams, lands, salt) for salt in SALTS)
    assert ahead_ms <= 0.9 * fmean(decode_ms(streams, lands, salt, ahead=False) for salt in SALTS)
    assert ahead_ms <= 0.7 * decode_ms(streams, 0.0, 0, drafts=False, ahead=False)


@pytest.mark.parametrize("lands", [0.0, 0.3, 0.5, 0.7, 0.9])
def test_a_lone_stream_does_not_lose(lands: float) -> None:
    """Nor does it where the server is fresh and no draft lands: what is lost then is lost while it learns."""
    plain_ms = decode_ms(1, 0.0, 0, drafts=False)
    assert min(plain_ms / decode_ms(1, lands, salt) for salt in SALTS) >= LEAST_OF_EACH


@pytest.mark.parametrize("lands", [0.0, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("streams", [4, 8, 16])
def test_company_loses_little_while_it_learns(streams: int, lands: float) -> None:
    """The server is fresh, and plain rounds of many streams run ahead as well: nothing hides what drafts cost."""
    plain_ms = decode_ms(streams, 0.0, 0, drafts=False)
    speeds = [plain_ms / decode_ms(streams, lands, salt) for salt in SALTS]
    assert fmean(speeds) >= LEAST_OF_EACH
    assert min(speeds) >= LEAST_WHILE_LEARNING


@pytest.mark.parametrize("streams", [1, 4, 8, 16])
def test_a_company_that_stood_aside_comes_back_where_drafts_land_again(streams: int) -> None:
    plain_ms = decode_ms(streams, 0.0, 0, drafts=False)
    assert plain_ms / decode_ms(streams, 0.95, 7, from_position=100) >= 1.15


@pytest.mark.parametrize("streams", [1, 4, 16])
def test_the_hosts_time_is_hidden(streams: int) -> None:
    assert decode_ms(streams, 0.0, 0, drafts=False) <= 0.6 * decode_ms(streams, 0.0, 0, drafts=False, ahead=False)
