"""Reuse in the whole loop: a reply from a reused prompt is the reply from a fresh one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.lanes.harness import Run, drafter, settings
from tests.lanes.prefix_checks import PrefixChecks
from tests.stubs import EOS, VOCAB, BrokenContractError, hashed, listed, looping, serial
from tfjax.lanes.memory import Memory
from tfjax.lanes.pages import PagePool
from tfjax.lanes.prefix_cache import PrefixCache
from tfjax.lanes.roster import Refused
from tfjax.lanes.stream import Request, Stream

MODES = ["perfect", "mixed", "wrong", "hostile", "copy"]


def start(mode: str = "mixed", **changes: int) -> Run:
    return Run(settings(**{"prompt_pages": 40, "first_width": 3, **changes}), None if mode == "copy" else drafter(mode))


def ask(
    name: str, prompt: tuple[int, ...], *, seed: int = 1, new: int = 9, drafts: bool = True, salt: str = ""
) -> Request:
    script = hashed(seed) if seed else looping(3, 1, slip=7)
    return Request(name, prompt, new, frozenset({EOS}), drafts, script, salt=salt)


def served(run: Run, *requests: Request) -> Stream:
    """Runs requests to their end beside whatever runs already, and compares them with the oracle."""
    run.admit(*requests)
    for _ in range(1000):
        if all(run.streams[request.id].reason for request in requests):
            break
        run.lanes.round()
    run.check_serial(*requests)
    PrefixChecks(run).check(run.streams.values())
    return run.streams[requests[-1].id]


@pytest.mark.parametrize("drafts", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [3, 4, 5, 7, 8, 9, 12, 13])
def test_a_second_turn_reuses_prompt_and_reply_and_says_the_same(size: int, mode: str, drafts: bool) -> None:
    for more in range(1, 6):
        run = start(mode)
        first = served(run, ask("first", tuple(range(size)), new=more + 5))
        second = served(run, ask("second", (*first.context, *range(more)), drafts=drafts))
        assert second.reused == min(first.cache_length, len(second.request.prompt) - 1) // 4 * 4
        assert second.reused >= size // 4 * 4
        third = served(run, ask("third", tuple(second.context[:-1]), seed=0))
        assert third.reused == (len(third.request.prompt) - 1) // 4 * 4


@pytest.mark.parametrize("size", [4, 5, 8, 9, 11, 12, 13])
def test_the_same_prompt_again_computes_its_last_rows(size: int) -> None:
    run = start()
    prompt = tuple(range(size))
    served(run, ask("first", prompt))
    run.backend.chunks.clear()
    assert served(run, ask("again", prompt, drafts=False)).reused == (size - 1) // 4 * 4
    assert run.backend.chunks == [("again", (size - 1) // 4 * 4, size)]


def test_others_reuse_what_a_running_stream_filled() -> None:
    run = start()
    prompt = tuple(range(21))
    long = ask("long", prompt, new=90)
    run.admit(long)
    for _ in range(4):
        run.lanes.round()
    for name, size, reused in (("one", 21, 20), ("two", 20, 16), ("three", 25, 20)):
        beside = served(run, ask(name, (*prompt, 7, 7, 7, 7)[:size], seed=2))
        assert beside.reused == reused
        assert run.streams["long"].reason is None
    run.finish()
    run.check_serial(long)


@pytest.mark.parametrize("rounds", range(8))
def test_what_a_cancelled_stream_committed_is_reused(rounds: int) -> None:
    run = start("perfect", growth_rows=8)
    prompt = tuple(range(40))
    beside = ask("beside", (1, 2, 3), new=60)
    run.admit(beside, ask("gone", prompt, new=90))
    for _ in range(rounds):
        run.lanes.round()
    gone = run.streams["gone"]
    run.lanes.cancel(gone)
    run.lanes.round()
    assert gone.reason == "cancelled"
    again = served(run, ask("again", (*gone.context, 3, 4)))
    assert again.reused == gone.cache_length // 4 * 4
    run.finish()
    run.check_serial(beside)


def test_an_end_in_the_middle_of_accepted_drafts_is_reused_exactly() -> None:
    """The tokens that a drafter had right past the end of a reply are no part of it."""
    for place in range(1, 10):
        run = start("perfect", first_width=8)
        script = listed([*range(1, place), EOS, *range(10, 20)])
        first = served(run, Request("first", tuple(range(7)), 30, frozenset({EOS}), True, script))
        assert first.cache_length == 7 + place - 1
        second = served(run, ask("second", (*first.context, 1, 2, 3, 4, 5)))
        assert second.reused == first.cache_length // 4 * 4


def test_what_failed_is_not_reused() -> None:
    run = start()
    run.backend.not_finite = {"bad": 0}
    run.admit(ask("bad", tuple(range(20))))
    run.finish()
    assert run.streams["bad"].reason == "error"
    assert served(run, ask("good", tuple(range(20)))).reused == 0


def test_salts_share_nothing_in_the_loop() -> None:
    run = start()
    prompt = tuple(range(20))
    reused = [served(run, ask(f"{at}", prompt, salt=salt)).reused for at, salt in enumerate(["a", "b", "a", "", "b"])]
    assert reused == [0, 0, 16, 0, 16]


def test_a_prompt_too_long_is_refused_before_anything_is_forgotten() -> None:
    run = start(pages=12, context=400)
    served(run, ask("first", tuple(range(20))))
    kept = run.lanes._roster.memory.prefixes.blocks
    for size, new in ((400, 1), (40, 30)):
        with pytest.raises(Refused):
            run.admit(ask("long", (1,) * size, new=new))
    assert run.lanes._roster.memory.prefixes.blocks == kept > 0


def case_c7(seed: int) -> None:
    """Six lanes, three with a shared prefix; two are cancelled at some moment and asked again. All equal solo runs."""
    rng = random.Random(seed)
    run = start(
        rng.choice(MODES), lanes=6, pages=rng.choice([52, 80, 200]), prompt_pages=rng.choice([4, 20]), growth_rows=8
    )
    shared = tuple(rng.randrange(VOCAB - 1) for _ in range(rng.randrange(4, 24)))
    prompts = [(*shared, *range(number)) for number in range(3)]
    prompts += [tuple(rng.randrange(VOCAB - 1) for _ in range(rng.randrange(1, 20))) for _ in range(3)]
    asks = [
        ask(f"r{number}", prompt, seed=number % 3, new=rng.randrange(1, 24), drafts=rng.random() < 0.7)
        for number, prompt in enumerate(prompts)
    ]
    checks = PrefixChecks(run)

    def wait(most: int) -> None:
        for _ in range(rng.randrange(most)):
            run.lanes.round()
            checks.check(run.streams.values())

    for request in rng.sample(asks, 6):
        run.admit(request)
        wait(4)
    wait(6)
    cancelled = rng.sample(asks, 2)
    for request in cancelled:
        run.lanes.cancel(run.streams[request.id])
    wait(3)
    again = [
        Request(f"{old.id}-again", old.prompt, old.max_new, old.stop_ids, old.drafts, old.sampling)
        for old in dict.fromkeys((*cancelled, *asks[:2]))
    ]
    for request in again:
        run.admit(request)
        wait(3)
    run.finish()
    checks.check(run.streams.values())
    for request in (*asks, *again):
        tokens, reason, logprobs = run.recorder.reply(request.id)
        expected = serial(request, run.settings.context)
        if reason == "cancelled":
            assert request in cancelled
            assert tokens == expected[0][: len(tokens)]
        else:
            assert (tokens, reason, logprobs) == expected


@pytest.mark.parametrize("part", range(10))
def test_shared_prefixes_with_cancels_and_retries(part: int) -> None:
    for seed in range(20 * part, 20 * part + 20):
        case_c7(seed)


# The tests above are tried: each planted fault must turn them red.


def covers_one_block_too_many(plant: pytest.MonkeyPatch) -> None:
    find = PrefixCache.find

    def all_of_it(cache: PrefixCache, stream: Stream) -> list[int]:
        longer = Request("longer", (*stream.request.prompt, 0), 1, salt=stream.request.salt)
        return find(cache, Stream(longer, 999, stream.times))

    plant.setattr(PrefixCache, "find", all_of_it)


def rows_past_the_committed_are_kept(plant: pytest.MonkeyPatch) -> None:
    leave = PrefixCache.leave
    plant.setattr(PrefixCache, "leave", lambda cache, stream, rows: leave(cache, stream, len(stream.context)))


def the_salt_is_ignored(plant: pytest.MonkeyPatch) -> None:
    plant.setattr("tfjax.lanes.prefix_cache._root", lambda salt: b"")


def a_shared_page_is_given_back(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(PagePool, "hold", lambda pool, pages: pool._holders.update(dict.fromkeys(pages, 1)))


def names_forget_their_parents(plant: pytest.MonkeyPatch) -> None:
    plant.setattr("tfjax.lanes.prefix_cache._name", lambda parent, tokens: bytes(tokens))


def a_forgotten_block_is_still_found(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(PrefixCache, "_forget", lambda cache, page: None)


def a_twin_is_shared_without_being_held(plant: pytest.MonkeyPatch) -> None:
    keep = PrefixCache._keep
    plant.setattr(PrefixCache, "_keep", lambda cache, name, page: keep(cache, name, page) and page)


def prompts_are_shared_before_they_are_whole(plant: pytest.MonkeyPatch) -> None:
    begin = Memory.begin

    def early(memory: Memory, stream: Stream) -> bool:
        begun = begin(memory, stream)
        if begun:
            memory.prompt_filled(stream)
        return begun

    plant.setattr(Memory, "begin", early)


def a_reused_prompt_starts_at_its_beginning(plant: pytest.MonkeyPatch) -> None:
    begin = Memory.begin

    def again(memory: Memory, stream: Stream) -> bool:
        begun = begin(memory, stream)
        stream.cache_length = 0
        return begun

    plant.setattr(Memory, "begin", again)


def nothing_is_kept_at_the_end(plant: pytest.MonkeyPatch) -> None:
    leave = PrefixCache.leave
    plant.setattr(PrefixCache, "leave", lambda cache, stream, rows: leave(cache, stream, 0))


PLANTS = [
    covers_one_block_too_many,
    rows_past_the_committed_are_kept,
    the_salt_is_ignored,
    a_shared_page_is_given_back,
    names_forget_their_parents,
    a_forgotten_block_is_still_found,
    a_twin_is_shared_without_being_held,
    prompts_are_shared_before_they_are_whole,
    a_reused_prompt_starts_at_its_beginning,
    nothing_is_kept_at_the_end,
]


def test_the_oracle_is_green_without_a_fault() -> None:
    oracle()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_turns_the_oracle_red(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, BrokenContractError, ValueError, IndexError, KeyError)):
        oracle()


def oracle() -> None:
    """A cut through the tests of this file."""
    test_salts_share_nothing_in_the_loop()
    test_the_same_prompt_again_computes_its_last_rows(8)
    for size in (7, 8):
        test_a_second_turn_reuses_prompt_and_reply_and_says_the_same(size, "perfect", True)
    test_an_end_in_the_middle_of_accepted_drafts_is_reused_exactly()
    for seed in range(30):
        case_c7(seed)
