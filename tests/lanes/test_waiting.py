"""When a round waits for the text of the one in flight, for the sake of what the host may offer after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import Any

import pytest

from tests.lanes.company import copy_of, prices_of, stream_of
from tests.lanes.drafted_harness import DraftedRun, settings
from tests.lanes.test_ahead_pays import HOLD_MS, QUEUE_MS, WINDOW_MS
from tests.lanes.test_never_loses import LEAST_OF_EACH, SALTS
from tests.stubs import Script
from tfjax.lanes.copy_drafts import CopyDrafts
from tfjax.lanes.prices import Prices
from tfjax.lanes.proposer import NOTHING, Proposal
from tfjax.lanes.stream import Request, Stream
from tfjax.lanes.waiting import LOOK_EVERY, Hope, Luck, Waiting

TABLE = {8: 10.0, 16: 10.0, 32: 12.0}


def priced(wait_ms: float, streams: int) -> Prices:
    """Rounds of 10 ms up to 16 rows, of which 2 are the host's, and what those take more that wait."""
    made = prices_of({8: 8.0, 16: 8.0, 32: 10.0}, hold_ms={1: {1: 1.0, 8: 1.0}, 16: {1: 1.0, 8: 1.0}})
    made.observe(streams, streams, 10.0, ahead=True)
    made.observe(streams, streams, 10.0 + wait_ms)
    return made


def lucky(share: float) -> Luck:
    """Of which this share of what it was promised landed."""
    luck = Luck()
    while luck.share > share + 1e-3:
        luck.observe(Proposal((1,), (0.001,)), (2,))
    return luck


def company(*offers: Proposal, share: float = 1.0) -> dict[Stream, Proposal]:
    found = {}
    for offer in offers:
        stream = stream_of()
        assert stream.drafting is not None
        stream.drafting.hope = Hope(lucky(share))
        found[stream] = offer
    return found


def worth(prices: Prices, offers: dict[Stream, Proposal], chains: Mapping[Stream, Sequence[float]]) -> bool:
    return Waiting(prices).worth(offers, chains)


# What is thought of offers.


def test_at_first_offers_are_believed() -> None:
    assert Luck().share == 1.0
    assert Luck(lucky(0.5)).share == pytest.approx(0.5, abs=0.01)


def test_every_token_that_came_in_an_offers_place_counts() -> None:
    luck = Luck()
    luck.observe(Proposal((1, 2, 3), (0.9, 0.8, 0.7)), (1, 2, 9))
    assert luck.share == pytest.approx((0.95 * 4 + 2) / (0.95 * 4 + 2.4))
    luck = Luck()
    luck.observe(Proposal((1, 2, 3), (0.9, 0.8, 0.7)), (4,))
    assert luck.share == pytest.approx(0.95 * 4 / (0.95 * 4 + 0.9))


def test_no_offer_and_no_token_are_no_news() -> None:
    luck = Luck()
    luck.observe(NOTHING, (1,))
    luck.observe(Proposal((1,), (0.9,)), ())
    assert luck.share == 1.0


def test_others_learn_of_it_and_new_streams_start_from_there() -> None:
    usual = Luck()
    one = Luck(usual)
    for _ in range(100):
        one.observe(Proposal((1,), (0.9,)), (2,))
    assert one.share == pytest.approx(usual.share)
    assert usual.share < 0.05
    assert Luck(usual).share == usual.share


def test_an_offer_is_judged_once() -> None:
    hope = Hope(Luck(), Proposal((1,), (0.9,)))
    hope.settle((2,), alone=True)
    share = hope.luck.share
    hope.settle((2,), alone=True)
    assert hope.luck.share == share < 1.0


# Whether it makes up for the wait.


@pytest.mark.parametrize(
    ("wait_ms", "tokens", "waits"), [(2.0, 1, False), (2.0, 2, True), (6.0, 2, False), (6.0, 3, True)]
)
def test_of_four_streams_the_offers_have_to_land_more_than_waiting_costs(
    wait_ms: float, tokens: int, waits: bool
) -> None:
    """2 ms of 10 are a fifth, and 5 % are to be gained: 1.04 tokens beside 4; with 6 ms 2.72. These land."""
    sure = Proposal(tuple(range(tokens)), (1.0,) * tokens)
    assert worth(priced(wait_ms, 4), company(sure, NOTHING, NOTHING, NOTHING), {}) is waits


@pytest.mark.parametrize(("share", "waits"), [(1.0, True), (0.5, True), (0.2, False)])
def test_what_offers_promise_is_weighed_by_what_landed(share: float, waits: bool) -> None:
    offers = company(Proposal((1, 2, 3), (0.9, 0.8, 0.7)), NOTHING, NOTHING, NOTHING, share=share)
    assert worth(priced(1.5, 4), offers, {}) is waits


def test_they_have_to_be_better_than_the_drafters_drafts() -> None:
    offers = company(Proposal((1, 2, 3, 4), (1.0, 1.0, 1.0, 1.0)), NOTHING)
    first = next(iter(offers))
    assert worth(priced(3.0, 2), offers, {})
    assert worth(priced(3.0, 2), offers, {first: (0.5, 0.2)})
    assert not worth(priced(8.0, 2), offers, {first: (0.9, 0.8)})
    assert not worth(priced(3.0, 2), offers, {first: (1.0, 0.99, 0.98)})
    assert not worth(priced(0.0, 2), offers, {first: (1.0, 1.0, 1.0, 1.0)})


@pytest.mark.parametrize(("hold_ms", "waits"), [(6.0, True), (4.0, False)])
def test_a_hold_that_is_not_needed_then_is_spared(hold_ms: float, waits: bool) -> None:
    """Drafts and offers yield the same but for a trifle; the wait takes 4 ms."""
    offers = company(*[Proposal((1, 2), (0.9, 0.82))] * 2)
    prices = prices_of({8: 8.0}, hold_ms={2: {1: hold_ms, 8: hold_ms}})
    prices.observe(2, 2, 10.0, ahead=True)
    prices.observe(2, 2, 10.0 + 4.0)
    assert worth(prices, offers, dict.fromkeys(offers, (0.9, 0.8))) is waits


def test_rows_that_need_a_wider_forward_cost_what_it_does() -> None:
    offers = company(*[Proposal((1,), (0.5,))] * 16)
    table = {16: 8.0, 32: 12.0}
    flat, steep = (prices_of(ms, hold_ms={1: {1: 1.0}}) for ms in ({16: 8.0, 32: 8.0}, table))
    for prices in (flat, steep):
        prices.observe(16, 16, 10.0, ahead=True)
        prices.observe(16, 16, 12.0)
    assert worth(flat, offers, {})
    assert not worth(steep, offers, {})


@pytest.mark.parametrize(("kept", "waits"), [(1.0, False), (1.4, False), (1.55, True), (4.0, True)])
def test_alone_it_counts_what_such_rounds_yielded(kept: float, waits: bool) -> None:
    """Copies get wider each time that one lands, which the first one does not tell. A wait of 4 ms on 10 here."""
    offers = company(copy_of(1), share=0.1)
    (stream,) = offers
    assert stream.drafting is not None
    stream.drafting.hope.kept = kept
    assert worth(priced(4.0, 1), offers, {}) is waits
    assert not worth(priced(4.0, 1), {stream: NOTHING}, {})


@pytest.mark.parametrize(
    ("match", "share", "waits"), [(8, 1.0, True), (8, 0.6, True), (8, 0.4, False), (7, 1.0, False)]
)
def test_alone_a_sure_copy_is_waited_for_while_such_land(match: int, share: float, waits: bool) -> None:
    offers = company(copy_of(2, match), share=share)
    (stream,) = offers
    assert worth(priced(4.0, 1), offers, {stream: (0.9, 0.9, 0.9, 0.9)}) is waits
    beside = {**offers, stream_of("beside"): NOTHING}
    assert not worth(priced(40.0, 2), beside, {})


def test_that_is_learned_from_rounds_that_waited_and_comes_back_where_offers_are_passed_over() -> None:
    hope = Hope(Luck())
    hope.note(True)
    hope.settle((1, 2, 3, 4, 5), alone=True)
    assert hope.kept == 3.0, "the round in flight had not waited"
    hope.settle((1,), alone=True)
    assert hope.kept == pytest.approx(2.8)
    hope.settle((1,), alone=True)
    assert hope.kept == pytest.approx(2.8)
    hope.note(True)
    hope.settle((1,), alone=True)
    hope.settle((1,), alone=False)
    assert hope.kept == pytest.approx(2.8)
    hope.note(False)
    assert hope.kept == pytest.approx(2.8 + 0.02 * 0.2)


# How often it is asked.


@pytest.mark.parametrize(("wait_ms", "asked_again"), [(2.0, 1), (20.0, LOOK_EVERY)])
def test_a_company_for_which_it_could_not_pay_asks_seldom(wait_ms: float, asked_again: int) -> None:
    """Half a token more for each of four streams makes up for 2 ms of 10, but not for 20."""
    waiting = Waiting(priced(wait_ms, 4))
    for _ in range(3):
        assert waiting.looks(4)
        assert not waiting.worth(company(copy_of(1), NOTHING, NOTHING, NOTHING, share=0.2), {})
        for _ in range(asked_again - 1):
            assert not waiting.looks(4)
    assert waiting.looks(4)


def test_what_is_worth_the_wait_is_asked_for_again_at_once() -> None:
    waiting = Waiting(priced(2.0, 4))
    assert waiting.worth(company(*[copy_of(3)] * 4), {})
    assert waiting.looks(4)


def test_a_lone_stream_asks_in_every_round() -> None:
    waiting = Waiting(priced(40.0, 1))
    for _ in range(3):
        assert waiting.looks(1)
        offers = company(copy_of(1))
        (stream,) = offers
        assert stream.drafting is not None
        stream.drafting.hope.kept = 1.0
        assert not waiting.worth(offers, {})


# All together, in simulated time.


def phrases(seed: int, length: int, known: int, strays: float) -> Script:
    """Text of so many phrases of a length, in any order; of its tokens some are others."""

    def draw(context: Sequence[int], prompt: int) -> int:
        place = len(context) - prompt
        if hash((seed, place, 5)) % 1000 < 1000 * strays:
            return hash((seed, place, 9)) % 49
        return hash((hash((seed, place // length, 3)) % known, place % length, 2)) % 49

    return draw


def served(streams: int, text: tuple[int, int, float], salt: int, *, drafts: bool, lands: float = 0.2) -> DraftedRun:
    """This share of the drafter's drafts lands."""
    target: dict[str, Any] = {"widths": tuple(WINDOW_MS), "window_ms": WINDOW_MS, "logprobs": False}
    run = DraftedRun(
        settings(lanes=16, context=600, pages=2600),
        "by_place",
        None,
        target={**target, "held_on_target": True, "lands": True},
        takes_ms=lambda streams, depth: 0.9 + 0.02 * depth,
        lands=lambda stream, position: hash((stream.lane, position, salt)) % 1000 < 1000 * lands,
        hold_ms=HOLD_MS,
    )
    asks = [
        Request(f"r{number}", (number, 1, 2, 3, 4), 400, drafts=drafts, sampling=phrases(number + 100 * salt, *text))
        for number in range(streams)
    ]
    for owner, name in ((run.backend, "verify"), (run.drafter, "hold")):
        queue = getattr(owner, name)
        setattr(owner, name, lambda work, queue=queue, ms=QUEUE_MS[name]: (run.clock.advance_ms(ms), queue(work))[1])
    run.admit(*asks)
    run.finish()
    run.check_tokens(*asks)
    return run


@cache
def decode_ms(streams: int, text: tuple[int, int, float], salt: int, *, drafts: bool) -> float:
    """Simulated milliseconds until the replies of all streams are whole."""
    return 1000 * served(streams, text, salt, drafts=drafts).clock()


@pytest.mark.parametrize("text", [(12, 10, 0.0), (12, 10, 0.1), (30, 6, 0.1), (8, 8, 0.0), (8, 30, 0.0)])
@pytest.mark.parametrize("streams", [4, 16])
def test_copies_that_seldom_land_keep_no_company_waiting(streams: int, text: tuple[int, int, float]) -> None:
    """Rounds that wait take half as long again. Where every offer was waited for, replies took a quarter longer."""
    speeds = [
        decode_ms(streams, text, salt, drafts=False) / decode_ms(streams, text, salt, drafts=True) for salt in SALTS
    ]
    assert fmean(speeds) >= LEAST_OF_EACH


@pytest.mark.parametrize(("text", "least"), [((12, 10, 0.0), 1.15), ((30, 6, 0.0), 1.35)])
def test_a_lone_streams_that_land_are_waited_for(text: tuple[int, int, float], least: float) -> None:
    for salt in SALTS:
        assert decode_ms(1, text, salt, drafts=False) >= least * decode_ms(1, text, salt, drafts=True)


@pytest.mark.parametrize("lands", [0.2, 0.9])
@pytest.mark.parametrize("text", [(12, 10, 0.1), (8, 1000, 0.0)])
def test_and_are_seldom_looked_for(text: tuple[int, int, float], lands: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is none, as of text that never repeats a phrase. A round that waits takes much longer here."""
    monkeypatch.setattr(Prices, "wait_ms", lambda *given: 1.4 if lands < 0.5 else 14.0)
    asked = []
    for name in ("propose", "pass_unread"):
        ask = getattr(CopyDrafts, name)
        monkeypatch.setattr(CopyDrafts, name, lambda *given, ask=ask: (asked.append(1), ask(*given))[1])
    run = served(16, text, 7, drafts=True, lands=lands)
    assert len(asked) < 0.4 * sum(len(windows) for windows in run.backend.forwards)
