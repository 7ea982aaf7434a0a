"""Drafting never costs more than it brings, in simulated time: whatever the text is like, and however many streams.

Windows take what two processor cores were seen to need, a draft lands with a given chance wherever it stands, and the
host works for a while each round, which running ahead hides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from statistics import fmean
from typing import Any

import pytest

from tests.lanes.drafted_harness import DraftedRun, settings
from tfjax.lanes.stream import Request, Stream

WINDOW_MS = {2: 23.0, 4: 26.0, 8: 31.0, 16: 44.0, 32: 65.0}
HOST_MS = 1.0
TOKENS = 400
Sure = Callable[[Stream, int], float]
SALTS = (7, 8, 9)
LEAST, LEAST_OF_EACH, LEAST_WHILE_LEARNING = 0.98, 0.97, 0.95


def hold_ms(streams: int, depth: int) -> float:
    return 1.0 + 1.2 * depth + 0.3 * streams


GRID_MS = {streams: {depth: hold_ms(streams, depth) for depth in (1, 2, 4, 8)} for streams in (1, 2, 4, 8)}


@cache
def decode_ms(
    kind: str,
    streams: int,
    lands: float,
    salt: int,
    drafts: bool,
    batch: int = 32,
    beyond_ms: float = 0.0,
    sure: str = "",
) -> float:
    """Simulated milliseconds until the replies of all streams are whole.

    `salt` decides which drafts land; holds take `beyond_ms` more than their price. The drafter may be `sure` of its
    drafts: "perfectly" of those that land, "rightly" nine times in ten, or in ways that say nothing or the opposite.
    """

    def landing(stream: Stream, position: int) -> bool:
        return hash((stream.lane, position, salt)) % 1000 < 1000 * lands

    def wrong(stream: Stream, position: int, share: int) -> bool:
        return hash((position, stream.lane, salt)) % 10 < share

    says: dict[str, Sure | None] = {
        "": None,
        "perfectly": lambda stream, position: 0.99 if landing(stream, position) else 0.01,
        "rightly": lambda stream, position: 0.9 if landing(stream, position) != wrong(stream, position, 1) else 0.1,
        "at random": lambda stream, position: hash((position, salt, stream.lane)) % 100 / 100,
        "always": lambda stream, position: 0.9,
        "never": lambda stream, position: 0.05,
        "of the wrong ones": lambda stream, position: 0.1 if landing(stream, position) else 0.9,
    }
    options: dict[str, Any] = {"hold_ms": GRID_MS} if kind == "priced" else {"step_ms": 1.2}
    run = DraftedRun(
        settings(context=600, pages=1200, batch_streams=batch),
        "by_place",
        target={"widths": tuple(WINDOW_MS), "window_ms": WINDOW_MS, "logprobs": False},
        takes_ms=lambda streams, depth: hold_ms(streams, depth) + beyond_ms,
        lands=landing,
        sure=says[sure],
        **options,
    )
    asks = [
        Request(f"r{number}", (number, 1, 2, 3, 4), TOKENS, drafts=drafts, sampling=short_sighted(number))
        for number in range(streams)
    ]
    run.admit(*asks)
    while True:
        run.clock.advance_ms(HOST_MS)
        if not run.lanes.round():
            break
    run.check_tokens(*asks)
    return 1000 * run.clock()


def short_sighted(seed: int) -> Any:
    return lambda context, prompt: hash((seed, len(context), context[-1])) % 49


def speed(kind: str, streams: int, lands: float, salt: int = SALTS[0], batch: int = 32, **more: Any) -> float:
    """How many times as fast as without drafts."""
    plain_ms = decode_ms(kind, streams, 0.0, SALTS[0], drafts=False, batch=batch)
    return plain_ms / decode_ms(kind, streams, lands, salt, drafts=True, batch=batch, **more)


@pytest.mark.parametrize("lands", [0.0, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("streams", [1, 2, 4, 8])
def test_holds_that_take_far_longer_than_their_price_are_soon_seen_through(streams: int, lands: float) -> None:
    """As for many streams with long contexts. The server is fresh: what is lost is lost while it learns."""
    speeds = [speed("priced", streams, lands, salt, beyond_ms=12.0) for salt in SALTS]
    assert fmean(speeds) >= LEAST_WHILE_LEARNING


@pytest.mark.parametrize("lands", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("streams", [1, 2, 4, 8])
def test_no_cell_loses_where_holds_have_prices(streams: int, lands: float) -> None:
    speeds = [speed("priced", streams, lands, salt) for salt in SALTS]
    assert fmean(speeds) >= LEAST
    assert min(speeds) >= LEAST_OF_EACH


@pytest.mark.parametrize("lands", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("streams", [1, 2])
def test_no_cell_of_few_streams_loses_where_they_have_none(streams: int, lands: float) -> None:
    speeds = [speed("own depths", streams, lands, salt) for salt in SALTS]
    assert fmean(speeds) >= LEAST
    assert min(speeds) >= LEAST_OF_EACH


@pytest.mark.parametrize(
    ("kind", "streams", "lands", "least"),
    [
        ("priced", 1, 0.5, 1.3),
        ("priced", 1, 0.9, 2.5),
        ("priced", 2, 0.5, 1.1),
        ("priced", 4, 0.7, 1.2),
        ("priced", 8, 0.7, 1.05),
        ("priced", 8, 0.9, 1.3),
        ("own depths", 1, 0.5, 1.25),
        ("own depths", 1, 0.9, 2.5),
    ],
)
def test_drafts_that_land_pay(kind: str, streams: int, lands: float, least: float) -> None:
    assert speed(kind, streams, lands) >= least


@pytest.mark.parametrize(("lands", "least"), [(0.0, LEAST), (0.9, 1.4)])
def test_more_streams_than_a_round_takes(lands: float, least: float) -> None:
    assert speed("priced", 5, lands, batch=2) >= least


@pytest.mark.parametrize("sure", ["rightly", "at random", "always", "never", "of the wrong ones"])
@pytest.mark.parametrize("streams", [1, 4, 8])
@pytest.mark.parametrize("lands", [0.1, 0.5])
def test_no_cell_loses_however_sure_the_drafter_is(streams: int, lands: float, sure: str) -> None:
    """Where drafts just pay, some streams of a round may get them and others not, which then end late."""
    speeds = [speed("priced", streams, lands, salt, sure=sure) for salt in SALTS]
    assert fmean(speeds) >= LEAST
    assert min(speeds) >= (LEAST_WHILE_LEARNING if lands == 0.5 else LEAST_OF_EACH)


@pytest.mark.parametrize(
    ("streams", "lands", "perfectly", "rightly"), [(2, 0.5, 1.08, 1.04), (4, 0.5, 1.12, 1.08), (8, 0.6, 1.05, 1.02)]
)
def test_a_drafter_that_knows_which_drafts_land_brings_more(
    streams: int, lands: float, perfectly: float, rightly: float
) -> None:
    silent = fmean(speed("priced", streams, lands, salt) for salt in SALTS)
    for sure, gain in (("perfectly", perfectly), ("rightly", rightly)):
        assert fmean(speed("priced", streams, lands, salt, sure=sure) for salt in SALTS) >= gain * silent, sure


@pytest.mark.parametrize(("streams", "lands"), [(1, 0.5), (4, 0.5), (8, 0.6)])
def test_one_that_is_sure_of_the_wrong_ones_is_seen_through(streams: int, lands: float) -> None:
    """What it says is as good as the opposite, once that is known."""
    silent = fmean(speed("priced", streams, lands, salt) for salt in SALTS)
    assert fmean(speed("priced", streams, lands, salt, sure="of the wrong ones") for salt in SALTS) >= silent
