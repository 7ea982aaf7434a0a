from __future__ import annotations

from collections.abc import Sequence

import pytest

from tfjax.lanes.sureness import FIRST_WEIGHT, LIKELY, TELLS_EVERY, Node, Sureness


def seen(*chains: tuple[float, ...], usual: Sureness | None = None) -> Sureness:
    sureness = Sureness(usual)
    for chain in chains:
        sureness.observe(chain)
    return sureness


def flat(nodes: Sequence[Node]) -> list[float]:
    return [part for node in nodes for part in node]


def test_nothing_is_known_before_a_hold_was_seen() -> None:
    assert Sureness().nodes(3) == []
    assert not Sureness().known
    assert not Sureness(Sureness()).known


def test_what_is_left_of_one_hold() -> None:
    sureness = seen((0.9, LIKELY, LIKELY - 0.01))
    assert sureness.known
    assert flat(sureness.nodes(3)) == pytest.approx([1.0, 0.9, 1.0, LIKELY, 0.0, 0.0])
    assert flat(sureness.nodes(1)) == pytest.approx([1.0, 0.9])


def test_it_averages_over_the_first_holds() -> None:
    (often, tokens), *_ = seen((0.8,), (0.1,), (0.6,), (0.2,)).nodes(1)
    assert (often, tokens) == pytest.approx((0.5, (0.8 + 0.6) / 4))


def test_later_it_follows_slowly() -> None:
    sureness = seen(*[(1.0,)] * 100)
    sureness.observe((0.1,))
    assert sureness.nodes(1)[0] == pytest.approx((0.95, 0.95))
    for _ in range(60):
        sureness.observe((0.1,))
    assert sureness.nodes(1)[0][0] < 0.06


def test_depths_never_seen_fall_like_the_first() -> None:
    found = seen((0.8,), (0.1,)).nodes(3)
    assert flat(found) == pytest.approx([0.5, 0.4, 0.25, 0.16, 0.125, 0.064])


def test_a_deeper_hold_begins_where_it_was_thought_to() -> None:
    sureness = seen((0.8,), (0.1,))
    sureness.observe((0.8, 0.7))
    (often, tokens), (deeper_often, deeper_tokens) = sureness.nodes(2)
    assert (often, tokens) == pytest.approx((2 / 3, 1.6 / 3))
    assert (deeper_often, deeper_tokens) == pytest.approx((0.25 + 0.75 / 3, 0.16 + (0.7 - 0.16) / 3))


def test_a_shallow_hold_says_nothing_of_deeper_drafts() -> None:
    sureness = seen((0.9, 0.8, 0.7))
    sureness.observe((0.1,))
    assert flat(sureness.nodes(3)[1:]) == pytest.approx([1.0, 0.8, 1.0, 0.7])


def test_a_new_stream_starts_from_what_others_left() -> None:
    usual = seen((0.9, 0.5))
    sureness = Sureness(usual)
    assert sureness.known
    assert sureness.nodes(2) == usual.nodes(2)
    sureness._seen = 1
    sureness.observe((0.1, 0.05))
    kept = 1 - 1 / (FIRST_WEIGHT + 1)
    assert flat(sureness.nodes(2)) == pytest.approx([kept, 0.9 * kept, kept, 0.5 * kept])


def test_a_stream_tells_the_others_of_some_holds() -> None:
    usual = Sureness()
    sureness = Sureness(usual)
    for _ in range(2 * TELLS_EVERY + 1):
        sureness.observe((0.9,))
    assert usual._seen == 3


def test_depths_that_the_stream_has_not_seen_are_those_of_the_others() -> None:
    usual = seen((0.9, 0.8, 0.7))
    sureness = Sureness(usual)
    sureness._seen = 1
    sureness.observe((0.5,))
    assert sureness.nodes(3)[1:] == usual.nodes(3)[1:]
