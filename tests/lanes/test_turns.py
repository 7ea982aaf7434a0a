from __future__ import annotations

from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.turns import next_prompt, take_turns


def stream(last_round: int = 0, forced: int = 0, prompt: int = 1) -> Stream:
    new = Stream(Request("r", (1,) * prompt, 9), prompt + 9, Times(0.0), last_round=last_round)
    new.forced.extend([1] * forced)
    return new


def test_the_least_recently_served_come_first_in_admission_order() -> None:
    streams = [stream(3), stream(1), stream(2), stream(1)]
    assert take_turns(streams, 2, 32) == [streams[1], streams[3]]
    assert take_turns(streams, 3, 32) == [streams[1], streams[2], streams[3]]


def test_the_batch_ends_where_the_rows_do() -> None:
    streams = [stream(forced=2), stream(forced=3), stream()]
    assert take_turns(streams, 32, 7) == streams[:2]
    assert take_turns(streams, 32, 8) == streams


def test_the_first_is_taken_however_many_rows_it_has() -> None:
    streams = [stream(forced=40), stream()]
    assert take_turns(streams, 32, 8) == streams[:1]


def test_nobody_waits_longer_than_it_takes_to_serve_the_others() -> None:
    streams = [stream() for _ in range(7)]
    for number in range(1, 71):
        for taken in take_turns(streams, 3, 32):
            assert number - taken.last_round <= 3
            taken.last_round = number


def test_the_prompt_with_the_fewest_tokens_left_goes_next() -> None:
    long, short = stream(prompt=50), stream(prompt=60)
    assert next_prompt([long, short]) is long
    short.cache_length = 20
    assert next_prompt([long, short]) is short


def test_a_prompt_skipped_eight_times_goes_next() -> None:
    long, short = stream(prompt=50), stream(prompt=5)
    turns = [next_prompt([long, short]) is long for _ in range(20)]
    assert [number for number, went in enumerate(turns) if went] == [8, 17]
