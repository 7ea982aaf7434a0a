from __future__ import annotations

import hashlib
import struct
from typing import Any

import pytest

from tests.engine.scripted_engine import ByteTokenizer, Receiver, generation, opened, spell
from tests.stubs import EOS, hashed, listed
from tfjax.engine.reply import Reply

MODES = ("perfect", "wrong", "mixed", "empty")


def shown(tokens: list[int], stops: tuple[str, ...]) -> tuple[str, list[int], int]:
    """By brute force: the text, the certain characters after each token, and how many tokens belong to the reply."""
    whole = b"".join(ByteTokenizer().token_bytes(token) for token in tokens)
    ends: list[int] = []
    for count in range(1, len(tokens) + 1):
        seen = b"".join(ByteTokenizer().token_bytes(token) for token in tokens[:count])
        text = seen.decode("utf-8", "ignore")
        found = min((text.index(stop) for stop in stops if stop in text), default=None)
        if found is not None:
            return text[:found], [*ends, found], count
        held = max((n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n]) and n), default=0)
        ends.append(len(text) - held)
    return whole.decode("utf-8", "replace"), ends, len(tokens)


TEXTS = {
    "stop in a word": ("hellostopworld", ("stop",)),
    "stop at once": ("stopworld", ("stop",)),
    "false starts": ("ststostopx", ("stop",)),
    "several": ("abcdefgh", ("fg", "de", "cdx")),
    "overlapping": ("aaabaaab", ("aab",)),
    "no stop": ("abcdefgh", ("zz",)),
    "tail held to the end": ("abcdefst", ("stop",)),
    "none asked": ("abcdefgh", ()),
    "characters of two bytes": ("aäböcüd", ("öc",)),
    "emoji": ("ab😀cd", ("cd",)),
    "stop of emoji": ("ab😀cd", ("😀",)),
}


@pytest.mark.parametrize(("text", "stops"), TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("mode", MODES)
def test_text_ends_before_the_first_stop_string(mode: str, text: str, stops: tuple[str, ...]) -> None:
    tokens = spell(text)
    with opened(mode) as door:
        got = door.reply(generation(listed(tokens), max_tokens=len(tokens), stop=stops))
    wanted, ends, count = shown(tokens, stops)
    assert got.text == wanted
    assert got.tokens == tokens[:count]
    assert got.text_ends == ends
    assert got.finished is not None
    assert got.finished.reason == ("stop" if count < len(tokens) or wanted != text else "length")


@pytest.mark.parametrize("block", range(1, 9))
def test_a_stop_string_at_any_place_of_a_block(block: int) -> None:
    for lead in range(9):
        tokens = spell("b" * lead + "stop" + "c" * 8)
        with opened("perfect", draft_tokens=block, first_width=block) as door:
            got = door.reply(generation(listed(tokens), stop=("stop",)))
        assert got.text == "b" * lead
        assert got.tokens == tokens[: lead + 4]


def test_text_ends_count_the_text_sent_before() -> None:
    """`text[:text_ends[i]]` is what was certain after token i, over all events of the reply."""
    with opened("mixed") as door:
        got = door.reply(generation(listed(spell("abcdefghij")), max_tokens=10, stop=("zz",)))
    assert len(got.events) > 1
    assert got.text_ends == list(range(1, 11))
    sent = 0
    for event in got.events:
        sent += len(event.text)
        if event.tokens:
            assert event.text_ends[-1] == sent


@pytest.mark.parametrize("mode", MODES)
def test_a_character_cut_by_the_length_is_shown_once_as_replacement(mode: str) -> None:
    tokens = spell("ab😀")[:-1]
    with opened(mode) as door:
        got = door.reply(generation(listed(tokens), max_tokens=len(tokens)))
    assert got.text == "ab\ufffd"
    assert all("\ufffd" not in event.text for event in got.events if event.tokens)
    assert got.tokens == tokens


def test_a_stop_id_is_a_token_without_text() -> None:
    tokens = [*spell("abc"), EOS, *spell("def")]
    with opened("perfect") as door:
        got = door.reply(generation(listed(tokens)))
        ignored = door.reply(generation(listed(tokens), ignore_eos=True, max_tokens=7))
        own = door.reply(generation(listed(tokens), stop_token_ids=(1,)))
    assert (got.text, got.tokens, got.text_ends) == ("abc", tokens[:4], [1, 2, 3, 3])
    assert got.finished is not None
    assert got.finished.reason == "stop"
    assert (ignored.text, ignored.tokens) == ("abcdef", tokens)
    assert (own.text, own.tokens) == ("a", tokens[:2])


@pytest.mark.parametrize("mode", MODES)
def test_the_hash_is_that_of_the_emitted_tokens(mode: str) -> None:
    with opened(mode) as door:
        got = door.reply(generation(hashed(5)))
    assert got.finished is not None
    packed = b"".join(struct.pack("<i", token) for token in got.tokens)
    assert got.finished.stats.token_sha256 == hashlib.sha256(packed).hexdigest()


def test_the_hash_of_no_tokens() -> None:
    tokenizer: Any = ByteTokenizer()
    receiver = Receiver()
    Reply(generation(hashed()), receiver, tokenizer, 10.0).refuse("no", 10.5)
    assert receiver.finished is not None
    stats = receiver.finished.stats
    assert (receiver.finished.reason, receiver.finished.error) == ("error", "no")
    assert stats.token_sha256 == hashlib.sha256(b"").hexdigest()
    assert (stats.queue_ms, stats.ttft_ms, stats.prompt_tokens, stats.completion_tokens) == (500.0, 0.0, 3, 0)


def test_counts_and_times() -> None:
    with opened("perfect", draft_tokens=4, first_width=4) as door:
        drafted = door.reply(generation(hashed(2), max_tokens=21))
        plain = door.reply(generation(hashed(2), max_tokens=21, draft=False))
    assert drafted.finished is not None
    assert plain.finished is not None
    stats, serial = drafted.finished.stats, plain.finished.stats
    assert (stats.prompt_tokens, stats.completion_tokens, stats.seed, stats.cached_tokens) == (3, 21, 77, 0)
    assert stats.token_sha256 == serial.token_sha256
    assert stats.accepted == stats.drafted > 0
    assert sum(stats.accepted_per_position) == stats.accepted
    assert sum(stats.drafted_per_position) == stats.drafted
    assert stats.rounds + stats.accepted + 1 == 21
    assert (serial.drafted, serial.drafted_rounds, serial.min_rows, serial.rounds) == (0, 0, 1, 20)
    for moment in (stats.queue_ms, stats.prefill_ms, stats.ttft_ms, stats.decode_ms):
        assert moment >= 0
    assert stats.ttft_ms >= stats.prefill_ms


def test_one_logprob_entry_a_token() -> None:
    with opened("perfect") as door:
        tokens = spell("abstopcdefgh")
        got = door.reply(generation(listed(tokens), stop=("stop",)))
    entries = [entry for event in got.events for entry in event.logprobs or ()]
    assert [entry[0] for entry in entries] == tokens[:6]  # type: ignore[index]
