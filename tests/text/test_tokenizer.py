"""Encoding, decoding and special tokens."""

from __future__ import annotations

import concurrent.futures

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text import backends
from tfjax.text.detokenizer import Detokenizer
from tfjax.text.tokenizer import SpecialTokens, Tokenizer, check_vocabulary

SPECIAL = SpecialTokens(bos_id=0, eos_ids=(1,), add_bos=False)
TOKENIZER = Tokenizer(backends.byte_level(), SPECIAL, "template")
SENTENCEPIECE = Tokenizer(backends.sentencepiece(), SpecialTokens(1, (2,), True))


def test_attributes() -> None:
    assert (TOKENIZER.bos_id, TOKENIZER.eos_ids, TOKENIZER.chat_template) == (0, (1,), "template")
    assert (TOKENIZER.bos_token, TOKENIZER.eos_token) == ("<s>", "</s>")
    assert TOKENIZER.vocab_size == 260
    assert [token for token in range(260) if TOKENIZER.is_special(token)] == [0, 1]


def test_a_model_may_have_neither_start_nor_end() -> None:
    bare = Tokenizer(backends.byte_level(), SpecialTokens(add_bos=True))
    assert (bare.bos_id, bare.eos_ids, bare.bos_token, bare.eos_token) == (None, (), "", "")
    assert bare.encode("a") == TOKENIZER.encode("a")
    assert bare.encode("a", add_bos=True) == TOKENIZER.encode("a")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30))
def test_text_comes_back(text: str) -> None:
    plain = TOKENIZER.encode(text, parse_special=False)
    assert TOKENIZER.decode(plain) == text
    assert b"".join(TOKENIZER.token_bytes(token) for token in plain) == text.encode()


@given(st.lists(st.integers(0, 259), max_size=20))
def test_whole_decode_equals_the_incremental_one(ids: list[int]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    pieces = [*(detokenizer.push(token) for token in ids), detokenizer.flush()]
    assert "".join(pieces) == TOKENIZER.decode(ids)


def test_special_tokens_in_text() -> None:
    assert TOKENIZER.encode("<s>ab</s>") == [0, 258, 1]
    plain = TOKENIZER.encode("<s>ab", parse_special=False)
    assert 0 not in plain
    assert TOKENIZER.decode(plain) == "<s>ab"
    # Asking once leaves no trace on the next call.
    assert TOKENIZER.encode("<s>") == [0]


def test_special_tokens_are_hidden_unless_asked_for() -> None:
    assert TOKENIZER.decode([0, 258, 1]) == "ab"
    assert TOKENIZER.decode([0, 258, 1], hide_special=False) == "<s>ab</s>"


@pytest.mark.parametrize(
    ("add_bos", "asked", "wanted"),
    [(True, None, True), (False, None, False), (True, False, False), (False, True, True)],
)
def test_bos(add_bos: bool, asked: bool | None, wanted: bool) -> None:
    tokenizer = Tokenizer(backends.byte_level(), SpecialTokens(0, (1,), add_bos))
    assert tokenizer.encode("ab", add_bos=asked) == ([0] if wanted else []) + [258]
    assert tokenizer.encode("", add_bos=asked) == ([0] if wanted else [])


def test_bos_that_the_text_already_has_is_not_doubled() -> None:
    assert TOKENIZER.encode("<s>ab", add_bos=True) == [0, 258]


def test_ids_out_of_range_have_no_text() -> None:
    assert TOKENIZER.token_bytes(-1) == TOKENIZER.token_bytes(10**9) == b""
    assert TOKENIZER.decode([-1, 258, 260]) == "ab"
    assert not TOKENIZER.is_special(10**9)


def test_token_text_is_fit_to_show() -> None:
    partial = TOKENIZER.encode("é")[0]
    assert [TOKENIZER.token_text(token) for token in (0, 258, partial)] == ["<s>", "ab", "\ufffd"]


def test_token_id() -> None:
    assert (TOKENIZER.token_id("</s>"), TOKENIZER.token_id("nothing")) == (1, None)


@pytest.mark.parametrize("parse_special", [True, False])
def test_lone_surrogate_is_named(parse_special: bool) -> None:
    with pytest.raises(ValueError, match="lone surrogate at character 2"):
        TOKENIZER.encode("ab\udc80", parse_special=parse_special)


def test_sentencepiece_falls_back_to_bytes() -> None:
    ids = SENTENCEPIECE.encode("a é")
    assert ids == [1, 261, 259, 3 + 0xC3, 3 + 0xA9]
    assert SENTENCEPIECE.decode(ids) == " a é"


def test_threads_do_not_disturb_each_other() -> None:
    def both(number: int) -> tuple[list[int], list[int]]:
        return TOKENIZER.encode("<s>"), TOKENIZER.encode("<s>", parse_special=False)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(both, range(200)))
    assert all(parsed == [0] and 0 not in plain for parsed, plain in results)


def test_vocabulary_must_fit_the_model() -> None:
    check_vocabulary(TOKENIZER, 260, "m")
    check_vocabulary(TOKENIZER, 512, "m")
    with pytest.raises(ValueError, match="m: the tokenizer has 260 token ids, but the model's vocab_size is 259"):
        check_vocabulary(TOKENIZER, 259, "m")
