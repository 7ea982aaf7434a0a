"""The cases on the lane core alone, without engine and server: quicker, and closer to the cause."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.lanes.harness import Run, complete, drafter, settings
from tests.stubs import EOS, VOCAB, ScriptedBackend, ScriptedProposer, hashed, listed, looping, penalised, serial
from tfjax.lanes.stream import Request, Stream

MODES = ScriptedProposer.MODES


def ask(name: str = "r", script: Any = None, prompt: int = 6, max_new: int = 40, **options: Any) -> Request:
    tokens = tuple((ord(name[-1]) * 3 + place) % VOCAB for place in range(prompt))
    stop_ids = options.pop("stop_ids", frozenset({EOS}))
    return Request(name, tokens, max_new, stop_ids, sampling=script or hashed(prompt), **options)


def stop_sequence(*sequence: int) -> Callable[[int], bool]:
    """A host check that ends a reply when the sequence is complete, wherever rounds begin and end."""
    seen: list[int] = []

    def check(token: int) -> bool:
        seen.append(token)
        return tuple(seen[-len(sequence) :]) == sequence

    return check


def checked(run: Run, request: Request, expected: Request) -> None:
    """Compare with a serial run of an equal request whose check has seen nothing yet."""
    run.admit(request)
    run.finish()
    assert run.recorder.reply(request.id) == serial(expected)


@pytest.mark.parametrize("before", range(20))
@pytest.mark.parametrize("block", [1, 2, 5, 16])
def test_a1_a2_a_stop_string_inside_an_accepted_block(before: int, block: int) -> None:
    script = listed([*[1, 2] * (before // 2), *[3] * (before % 2), 7, 8, 9, *[5] * 30])
    for drafts in (True, False):
        first, second = (ask(script=script, check=stop_sequence(7, 8, 9), drafts=drafts) for _ in range(2))
        run = Run(settings(first_width=block), drafter("perfect"))
        checked(run, first, second)
        assert len(run.recorder.tokens["r"]) == len(run.recorder.logprobs["r"]) == before + 3
        assert run.streams["r"].reason == "stop"


@pytest.mark.parametrize("offset", range(17))
@pytest.mark.parametrize("eos", [EOS, 48, 47])
def test_a5_a11_eos_at_each_place_of_a_block_ends_the_reply_there(offset: int, eos: int) -> None:
    script = listed([*range(1, offset + 1), eos, 40, 40, 40])
    request = ask(script=script, stop_ids=frozenset({EOS, 48, 47}))
    run = complete([request], settings(first_width=16), drafter("perfect"))
    assert run.recorder.tokens["r"][-1] == eos
    assert run.streams["r"].emitted == offset + 1
    assert run.streams["r"].reason == "stop"


def test_a11_eos_that_is_only_a_draft_does_not_end_the_reply() -> None:
    class GuessesEos(ScriptedProposer):
        def _guess(self, count: int) -> list[int]:
            return [EOS] * count

    request = ask(script=listed([1, 2, 3, 4, EOS]))
    run = complete([request], settings(first_width=4), lambda r: GuessesEos(r, "perfect"))
    assert run.streams["r"].emitted == 5
    assert run.streams["r"].counts.accepted == 1


@pytest.mark.parametrize("mode", MODES)
def test_a6_nothing_past_the_end_stays_in_the_cache(mode: str) -> None:
    """As in the serial run, the last token is emitted but never enters the cache."""
    script = listed([1, 2, 3, 4, EOS, 5, 6, 7])
    probes = []

    class Probed(ScriptedBackend):
        def release(self, stream: Stream) -> None:
            probes.append(self.state_probe(stream))
            super().release(stream)

    for proposer, drafts in ((drafter(mode), True), (None, False)):
        run = Run(settings(first_width=8), proposer, Probed(pages=400))
        request = ask(script=script, drafts=drafts)
        run.admit(request)
        run.finish()
    assert probes[0] == probes[1] == (*request.prompt, 1, 2, 3, 4)


@pytest.mark.parametrize("max_new", range(1, 21))
@pytest.mark.parametrize("mode", MODES)
def test_a8_exactly_max_tokens(max_new: int, mode: str) -> None:
    request = ask(max_new=max_new, stop_ids=frozenset())
    run = complete([request], settings(first_width=7), drafter(mode))
    stream = run.streams["r"]
    assert stream.emitted == max_new
    assert stream.counts.kept == max_new - 1
    assert stream.counts.accepted == sum(stream.counts.accepted_per_position) <= stream.counts.drafted


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_b7_penalties_count_tokens_and_not_rounds(mode: str, limit: int) -> None:
    request = ask(script=penalised(looping(3, 1), limit), max_new=60)
    complete([request], settings(first_width=8), drafter(mode))


@pytest.mark.parametrize("mode", MODES)
def test_b7_min_tokens_counts_tokens(mode: str) -> None:
    script = penalised(listed([1, 2, EOS, 3]), limit=99, min_tokens=10)
    always = penalised(lambda context, prompt: EOS, limit=99, min_tokens=10)
    for request in (ask(script=script), ask(script=always)):
        run = complete([request], settings(first_width=8), drafter(mode))
        assert run.streams["r"].emitted >= 10
    assert run.streams["r"].emitted == 11
    assert run.streams["r"].reason == "stop"


def company(seed: int, count: int = 6) -> list[Request]:
    scripts = [hashed(seed), looping(3, seed, slip=7), listed([1, 2, 3, 4, 5, 6, 7, EOS], seed)]
    return [
        ask(f"{seed}-{number}", scripts[number % 3], 3 + (seed + 3 * number) % 17, 12 + number, drafts=number % 4 != 3)
        for number in range(count)
    ]


def test_c7_cancelling_and_trying_again_leaves_the_others_alone() -> None:
    """200 rounds of chaos on one loop, which must be as new after each."""
    chance = random.Random(7)
    modes: dict[str, str] = {}
    run = Run(settings(lanes=4, pages=40, growth_rows=8), lambda r: ScriptedProposer(r, modes[r.id]))
    for iteration in range(200):
        requests = company(iteration)
        modes |= {request.id: chance.choice(MODES) for request in requests}
        run.admit(*requests)
        gone = chance.sample(requests, 2)
        for request in gone:
            for _ in range(chance.randrange(6)):
                run.lanes.round()
            run.lanes.cancel(run.streams[request.id])
        again = [ask(request.id + "again", request.sampling, len(request.prompt), request.max_new) for request in gone]
        modes |= {request.id: chance.choice(MODES) for request in again}
        run.admit(*again)
        run.finish()
        run.check_serial(*again, *[request for request in requests if request not in gone])
        for request in gone:
            tokens, _, logprobs = run.recorder.reply(request.id)
            expected = serial(request)
            assert (tokens, logprobs) == (expected[0][: len(tokens)], expected[2][: len(tokens)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_c8_lanes_do_not_drift_into_each_other(lanes: int, mode: str) -> None:
    requests = company(3, lanes)
    run = complete(requests, settings(lanes=lanes, first_width=5), drafter(mode))
    for request in requests:
        assert (0 in run.recorder.tokens[request.id]) == (0 in serial(request)[0])


@pytest.mark.parametrize("beyond", [0, 1, 4, 100])
def test_c12_a_drafter_at_its_limit_stops_and_the_target_goes_on(beyond: int) -> None:
    requests = [ask("a", prompt=60, max_new=300, stop_ids=frozenset()), ask("b", max_new=90)]
    run = complete(requests, settings(context=256, first_width=8), drafter("perfect", limit=64 + beyond))
    stream = run.streams["a"]
    assert len(stream.context) == 256
    assert stream.reason == "length"
    assert stream.counts.accepted <= 4 + beyond


@pytest.mark.parametrize("block", range(1, 17))
def test_c12_a_reply_up_to_the_very_last_slot(block: int) -> None:
    """The cache has no page to spare beyond the context."""
    request = ask(prompt=7, max_new=99, stop_ids=frozenset())
    run = complete([request], settings(lanes=1, context=32, pages=8, first_width=block), drafter("perfect"))
    assert len(run.streams["r"].context) == 32


def test_e7_every_stream_of_a_batch_drafts() -> None:
    requests = [ask(f"r{number}", hashed(number), max_new=60, stop_ids=frozenset()) for number in range(4)]
    run = complete(requests, settings(first_width=3), drafter("perfect"))
    for stream in run.streams.values():
        assert stream.counts.kept / stream.counts.rounds > 3


def test_e10_one_lane_and_sixteen_drafts() -> None:
    requests = [ask(f"r{number}") for number in range(3)]
    for width in (16, 64):
        complete(requests, settings(lanes=1, draft_tokens=16, first_width=width), drafter("perfect"))


def test_f2_six_streams_with_drafters_that_have_state() -> None:
    run = complete(company(11), settings(first_width=6), drafter("mixed", k=3))
    assert all(stream.counts.accepted for stream in run.streams.values() if stream.request.drafts)


@pytest.mark.parametrize("lanes", range(1, 33))
@pytest.mark.parametrize("mode", ["mixed", "hostile"])
def test_f3_any_number_of_lanes(lanes: int, mode: str) -> None:
    """Including one stream more than a width holds, with the widest forward at 32 rows."""
    requests = [ask(f"r{number}", hashed(number), 3 + number % 9, 6 + number % 5) for number in range(lanes)]
    numbers = settings(lanes=lanes, first_width=4)
    stub = {"widths": (2, 4, 8, 16, 32)}
    complete(requests, numbers, drafter(mode), **stub)


def test_f3_more_streams_than_the_widest_forward_holds() -> None:
    requests = [ask(f"r{number}", hashed(number), 3, 30) for number in range(7)]
    run = complete(requests, settings(lanes=7), drafter("perfect"), widths=(2, 4))
    assert isinstance(run.backend, ScriptedBackend)
    assert max(len(windows) for windows in run.backend.forwards) == 4
