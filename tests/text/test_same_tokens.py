from __future__ import annotations

import pytest
from tokenizers import AddedToken

from tests.text import backends
from tfjax.text.same_tokens import DifferentToken, first_difference
from tfjax.text.tokenizer import SpecialTokens, Tokenizer


def byte_level(*added: AddedToken) -> Tokenizer:
    backend = backends.byte_level()
    backend.add_tokens(list(added))
    return Tokenizer(backend, SpecialTokens())


def test_equal_ones() -> None:
    assert first_difference(byte_level(), byte_level()) is None
    rules = Tokenizer(backends.byte_level(), SpecialTokens(bos_id=0, eos_ids=(1,), add_bos=True), "a template")
    assert first_difference(byte_level(), rules) is None, "rules and templates are no tokens"


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ([], [AddedToken("x1")], DifferentToken(260, None, "x1")),
        ([AddedToken("x1")], [], DifferentToken(260, "x1", None)),
        ([AddedToken("x1")], [AddedToken("x2")], DifferentToken(260, "x1", "x2")),
        ([AddedToken("x1", special=True)], [AddedToken("x2", special=True)], DifferentToken(260, "x1", "x2")),
        ([AddedToken("x1", special=True)], [AddedToken("x1")], DifferentToken(260, "x1", "x1")),
    ],
)
def test_the_first_token_that_differs(one: list[AddedToken], other: list[AddedToken], found: DifferentToken) -> None:
    assert first_difference(byte_level(*one), byte_level(*other)) == found


def test_another_kind_of_tokenizer() -> None:
    found = first_difference(byte_level(), Tokenizer(backends.sentencepiece(), SpecialTokens()))
    assert found == DifferentToken(0, "<s>", "<unk>")
