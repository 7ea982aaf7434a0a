"""What drafts are worth once the drafter said how sure it is of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.lanes.company import stream_of
from tests.lanes.drafted_harness import FLAT_MS, GRID_MS, DraftedRun, complete, settings
from tests.lanes.test_oracle import requests
from tests.scripted_drafter import ScriptedDrafter
from tfjax.lanes.calibration import TRUSTED_AFTER
from tfjax.lanes.drafting import Drafting
from tfjax.lanes.stream import Stream
from tfjax.lanes.weighing import LEARNS_FROM, Weighing

WINDOW_MS = {2: 30.0, 4: 33.0, 8: 38.0, 16: 50.0, 32: 80.0}


class Saying:
    """Stands in for the drafter behind its wrapper: says what it is told to, and knows who asked."""

    def __init__(self, said: Mapping[Stream, Sequence[float]]) -> None:
        self.drafter = self
        self.depth = 8
        self.said = said
        self.asked: list[list[Stream]] = []

    def confidences(self, streams: Sequence[Stream]) -> dict[Stream, Sequence[float]]:
        self.asked.append(list(streams))
        return {stream: self.said[stream] for stream in streams if stream in self.said}


def weighing_of(said: Mapping[Stream, Sequence[float]], trusted: bool = True) -> tuple[Weighing, Saying]:
    saying: Any = Saying(said)
    weighing = Weighing(saying)
    for stream in said:
        drafting_of(stream).confidence = weighing.open()
    weighing._calibration.seen = TRUSTED_AFTER if trusted else 0
    return weighing, saying


def drafting_of(stream: Stream) -> Drafting:
    assert stream.drafting is not None
    return stream.drafting


def test_the_drafters_word_takes_the_place_of_what_was_expected() -> None:
    stream = stream_of(chances=(0.7, 0.5, 0.3))
    weighing, _ = weighing_of({stream: (0.9, 0.5, 0.2)})
    weighing.weigh([stream])
    assert drafting_of(stream).chances == pytest.approx((0.9, 0.45, 0.09))
    assert drafting_of(stream).confidence.sureness.nodes(2)[0] == pytest.approx((1.0, 0.9))


def test_until_its_word_was_tried_it_changes_nothing() -> None:
    stream = stream_of(chances=(0.7, 0.5, 0.3))
    weighing, _ = weighing_of({stream: (0.9, 0.5, 0.2)}, trusted=False)
    weighing.weigh([stream])
    assert drafting_of(stream).chances == (0.7, 0.5, 0.3)
    assert not drafting_of(stream).confidence.sureness.known


def test_once_it_was_tried_what_was_said_before_is_looked_at_again() -> None:
    stream = stream_of(chances=(0.7, 0.5))
    weighing, _ = weighing_of({stream: (0.9, 0.9)}, trusted=False)
    for _ in range(TRUSTED_AFTER):
        weighing.weigh([stream])
        weighing.learn(drafting_of(stream), 2, 0)
    drafting_of(stream).chances = (0.7, 0.5)
    weighing.weigh([stream])
    (often, tokens), _ = drafting_of(stream).confidence.sureness.nodes(2)
    assert often == tokens == 0.0, "none of them landed, so none was likely"
    assert drafting_of(stream).confidence.sureness._seen == TRUSTED_AFTER + 1


def test_drafts_of_a_probe_are_taken_as_they_are() -> None:
    stream = stream_of(chances=(0.7, 0.5))
    weighing, _ = weighing_of({stream: (0.1, 0.1)})
    drafting_of(stream).stand.probing = True
    weighing.weigh([stream])
    assert drafting_of(stream).chances == (0.7, 0.5)
    assert drafting_of(stream).confidence.said == (0.1, 0.1)


def test_drafts_that_were_not_made_have_no_chance() -> None:
    stream = stream_of(chances=(0.7, 0.5, 0.3))
    weighing, _ = weighing_of({stream: (0.9,)})
    weighing.weigh([stream])
    assert drafting_of(stream).chances == (0.9, 0.0, 0.0)


def test_more_drafts_than_asked_for_do_not_count() -> None:
    stream = stream_of(chances=(0.7,))
    weighing, _ = weighing_of({stream: (0.9, 0.9)})
    weighing.weigh([stream])
    assert drafting_of(stream).chances == (0.9,)


@pytest.mark.parametrize("said", [(0.9, nan), (nan, 0.9), (1.1, 0.5), (0.5, -0.1)])
def test_what_is_no_chance_is_not_taken_for_one(said: tuple[float, ...]) -> None:
    stream = stream_of(chances=(0.7, 0.5))
    weighing, _ = weighing_of({stream: said})
    weighing.weigh([stream])
    assert drafting_of(stream).chances == (0.7, 0.5)
    weighing.learn(drafting_of(stream), 2, 1)
    assert weighing._calibration.seen == TRUSTED_AFTER


def test_only_those_are_asked_for_whose_drafts_wait_unweighed() -> None:
    waiting, weighed, idle, bare = stream_of(chances=(0.5,)), stream_of(chances=(0.5,)), stream_of(), stream_of()
    bare.drafting = None
    weighing, saying = weighing_of({waiting: (0.6,), weighed: (0.7,)})
    weighing.weigh([weighed])
    weighing.weigh([waiting, weighed, idle, bare])
    assert saying.asked == [[weighed], [waiting]]


@pytest.mark.parametrize(
    ("held", "accepted", "learned"), [(3, 3, 3), (3, 1, 2), (3, 0, 1), (2, 2, 2), (0, 0, 0), (0, 2, 0)]
)
def test_drafts_teach_up_to_the_first_that_missed(held: int, accepted: int, learned: int) -> None:
    stream = stream_of(chances=(0.7, 0.5, 0.3))
    weighing, _ = weighing_of({stream: (0.9, 0.8, 0.7)})
    weighing.weigh([stream])
    weighing.learn(drafting_of(stream), held, accepted)
    assert weighing._calibration.seen == TRUSTED_AFTER + learned
    assert drafting_of(stream).confidence.granted == held
    assert drafting_of(stream).confidence.said == ()


@pytest.mark.parametrize(
    ("held", "accepted", "trusted", "moves"),
    [(1, 1, True, True), (0, 0, True, True), (1, 0, True, False), (3, 3, True, False), (1, 1, False, False)],
)
def test_a_draft_left_out_after_those_that_landed_moves_what_is_expected(
    held: int, accepted: int, trusted: bool, moves: bool
) -> None:
    stream = stream_of(chances=(0.7, 0.5, 0.3))
    weighing, _ = weighing_of({stream: (0.1, 0.1, 0.1)}, trusted)
    weighing.weigh([stream])
    before = drafting_of(stream).acceptance.chain(4)
    weighing.learn(drafting_of(stream), held, accepted)
    after = drafting_of(stream).acceptance.chain(4)
    assert (after != before) == moves
    assert after[:held] == before[:held]


def test_where_nothing_was_said_nothing_is_learned() -> None:
    stream = stream_of(chances=(0.7, 0.5))
    weighing, _ = weighing_of({stream: (0.9, 0.9)})
    weighing.learn(drafting_of(stream), 2, 2)
    assert weighing._calibration.seen == TRUSTED_AFTER
    assert drafting_of(stream).confidence.granted is None


def test_many_streams_take_turns_in_teaching() -> None:
    streams = [stream_of(str(number), chances=(0.5,)) for number in range(4 * LEARNS_FROM)]
    weighing, _ = weighing_of(dict.fromkeys(streams, (0.6,)))
    for _ in range(8):
        for stream in streams:
            drafting_of(stream).chances = (0.5,)
        weighing.weigh(streams)
        for stream in streams:
            weighing.learn(drafting_of(stream), 1, 1)
    assert weighing._calibration.seen == TRUSTED_AFTER + 2 * len(streams)
    assert drafting_of(streams[0]).confidence.sureness._seen == 2


# In the loop.


def any_confidence(stream: Stream, position: int) -> float:
    return (hash((stream.lane, position)) % 101) / 100


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("mode", ScriptedDrafter.MODES)
def test_no_confidence_changes_a_reply(mode: str, depth: int) -> None:
    for company, held_on_target in ((1, False), (2, True), (8, False)):
        target = {"window_ms": FLAT_MS, "held_on_target": held_on_target}
        complete(requests(company), mode=mode, depth=depth, target=target, hold_ms=GRID_MS, sure=any_confidence)


@pytest.mark.parametrize("say", [lambda stream, position: nan, lambda stream, position: 7.0])
def test_nonsense_harms_nobody(say: Any) -> None:
    run = complete(requests(3), mode="perfect", target={"window_ms": FLAT_MS}, hold_ms=GRID_MS, sure=say)
    assert all(stream.counts.accepted for stream in run.streams.values())


def log_of(run: DraftedRun) -> Any:
    forwards = [
        [(one.stream.request.id, one.position, one.drafts) for one in forward] for forward in run.backend.forwards
    ]
    return forwards, run.drafter.holds, run.clock()


@examples(max_examples=25, deadline=None)
@given(
    company=st.integers(1, 6),
    lands=st.sampled_from([0.1, 0.4, 0.7, 0.95]),
    salt=st.integers(0, 99),
    tokens=st.integers(5, 90),
)
def test_a_drafter_that_does_not_say_is_served_as_if_nothing_were_ever_weighed(
    company: int, lands: float, salt: int, tokens: int
) -> None:
    def run(weighs: bool) -> Any:
        made = DraftedRun(
            settings(),
            "by_place",
            target={"widths": tuple(WINDOW_MS), "window_ms": WINDOW_MS},
            hold_ms=GRID_MS,
            lands=lambda stream, position: hash((stream.lane, position, salt)) % 100 < 100 * lands,
        )
        asking = made.lanes._asking
        if not weighs:
            asking._weighing = None
            asking._joint._mixed = lambda live, wanted, price_ms, plain: (  # type: ignore[method-assign]
                asking._joint._share(live, wanted, price_ms),
                1.05,
            )
            asking.open = lambda stream: setattr(stream, "drafting", Drafting(8, asking._usual))  # type: ignore[method-assign]
        made.admit(*requests(company, tokens))
        made.finish()
        return log_of(made)

    assert run(weighs=True) == run(weighs=False)
