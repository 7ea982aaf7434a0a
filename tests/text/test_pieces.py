"""Every token's bytes are exact."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models

from tests.text import backends
from tfjax.text.pieces import UnsupportedTokenizer, byte_alphabet, token_bytes


def test_byte_alphabet_is_gpt2s() -> None:
    """Against the alphabet that the tokenizers package writes."""
    backend = backends.byte_level()
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert backend.pre_tokenizer is not None
    for byte in range(0x80):
        ((piece, _),) = backend.pre_tokenizer.pre_tokenize_str(chr(byte))
        assert alphabet[piece] == byte
    for text in ("é", "漢", "😀", "\u00ad"):
        pieces = backend.pre_tokenizer.pre_tokenize_str(text)
        assert bytes(alphabet[char] for piece, _ in pieces for char in piece) == text.encode()


def test_byte_level() -> None:
    backend = backends.byte_level()
    pieces = token_bytes(backend)
    assert pieces[backend.token_to_id("ab")] == b"ab"
    assert sorted(pieces[2:258]) == [bytes([byte]) for byte in range(256)]


def test_special_tokens_have_no_bytes_and_added_text_has_its_own() -> None:
    backend = backends.byte_level()
    pieces = token_bytes(backend)
    assert pieces[:2] == [b"", b""]
    assert pieces[backend.token_to_id("<tool> é")] == "<tool> é".encode()


def test_sentencepiece_bytes() -> None:
    backend = backends.sentencepiece()
    pieces = token_bytes(backend)
    assert pieces[:3] == [b"", b"", b""]
    assert pieces[3:259] == [bytes([byte]) for byte in range(256)]
    assert pieces[259:] == [b" ", b"a", b" a"]


def test_metaspace_without_byte_fallback() -> None:
    backend = Tokenizer(models.BPE(vocab={"\u2581a": 0, "<0x41>": 1}, merges=[]))
    backend.decoder = decoders.Metaspace()
    assert token_bytes(backend) == [b" a", b"<0x41>"]


def test_ids_without_a_token_have_no_bytes() -> None:
    backend = Tokenizer(models.BPE(vocab={"a": 0, "b": 3}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    assert token_bytes(backend) == [b"a", b"", b"", b"b"]


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.CTC()])
def test_unknown_kinds_are_refused(decoder: decoders.Decoder | None) -> None:
    backend = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    if decoder is not None:
        backend.decoder = decoder
    with pytest.raises(UnsupportedTokenizer, match="is not supported; expected ByteLevel or sentencepiece's"):
        token_bytes(backend)
