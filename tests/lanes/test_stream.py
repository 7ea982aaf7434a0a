from __future__ import annotations

from tfjax.lanes.stream import Counts, Request, Stream, Times


def test_a_stream_starts_with_its_prompt() -> None:
    stream = Stream(Request("r", (1, 2, 3), 5), 8, Times(0.0))
    assert stream.context == [1, 2, 3]
    assert (stream.emitted, stream.decoding, stream.left, stream.room) == (0, False, 5, 4)


def test_room_is_what_is_left_but_one() -> None:
    stream = Stream(Request("r", (1, 2, 3), 50), 8, Times(0.0))
    stream.context += [4, 5, 6, 7]
    assert (stream.emitted, stream.decoding, stream.left, stream.room) == (4, True, 1, 0)


def test_streams_are_told_apart_by_identity() -> None:
    one, other = (Stream(Request("r", (1,), 5), 6, Times(0.0)) for _ in range(2))
    assert one != other
    assert len({one, other}) == 2


def test_counts_keep_drafted_kept_and_accepted_apart() -> None:
    counts = Counts()
    counts.add_round(drafted=0, accepted=0, kept=1, rows=1)
    counts.add_round(drafted=3, accepted=2, kept=3, rows=4)
    counts.add_round(drafted=2, accepted=0, kept=1, rows=3)
    counts.add_round(drafted=1, accepted=1, kept=2, rows=2)
    assert counts == Counts(
        rounds=4,
        drafted=6,
        kept=7,
        accepted=3,
        drafted_rounds=3,
        min_rows=1,
        drafted_windows=[0, 1, 1, 1],
        accepted_windows=[1, 1, 1],
    )
    assert counts.drafted_per_position == [3, 2, 1]
    assert counts.accepted_per_position == [2, 1]


def test_without_drafts_no_place_is_counted() -> None:
    counts = Counts()
    counts.add_round(drafted=0, accepted=0, kept=1, rows=1)
    assert counts.drafted_per_position == counts.accepted_per_position == []
    counts.add_round(drafted=2, accepted=0, kept=1, rows=3)
    assert counts.drafted_per_position == [1, 1]
    assert counts.accepted_per_position == []


def test_min_rows_is_the_narrowest_window() -> None:
    counts = Counts()
    assert counts.min_rows == 0
    for rows in (4, 2, 3):
        counts.add_round(drafted=rows - 1, accepted=0, kept=1, rows=rows)
    assert counts.min_rows == 2
