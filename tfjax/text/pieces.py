"""The exact bytes that each token stands for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import tokenizers

SPACE_MARK = "\u2581"
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class UnsupportedTokenizer(ValueError):
    """A tokenizer whose tokens have no known bytes, or that cannot be rebuilt; the message says why."""


def byte_alphabet() -> dict[str, int]:
    """The character that byte-level BPE writes for each byte, character -> byte.

    Printable bytes stand for themselves, the others for characters from U+0100 on. Source: GPT-2's published encoder.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def token_bytes(backend: tokenizers.Tokenizer) -> list[bytes]:
    """The bytes of every token id, b"" for special tokens and for ids that are not in use.

    Raises:
        UnsupportedTokenizer: neither byte-level nor sentencepiece-like.
    """
    added = backend.get_added_tokens_decoder()
    vocabulary = backend.get_vocab(with_added_tokens=True)
    to_bytes = _converter(json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else {})
    pieces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for text, token in vocabulary.items():
        known = added.get(token)
        if known is None:
            pieces[token] = to_bytes(text)
        elif not known.special:
            pieces[token] = text.encode()
    return pieces


def _converter(decoder: Mapping[str, Any]) -> Callable[[str], bytes]:
    """How a token's text becomes bytes, told by the tokenizer's decoder."""
    steps = decoder.get("decoders", [decoder])
    kinds = {step.get("type") for step in steps}
    if kinds == {"ByteLevel"}:
        return _byte_level(byte_alphabet())
    marks_space = any(step.get("type") == "Metaspace" or step.get("content") == " " for step in steps)
    if marks_space and kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
        return _sentencepiece("ByteFallback" in kinds)
    raise UnsupportedTokenizer(
        f"tokenizer decoder {sorted(map(str, kinds))} is not supported; expected ByteLevel or sentencepiece's"
    )


def _byte_level(alphabet: Mapping[str, int]) -> Callable[[str], bytes]:
    def convert(text: str) -> bytes:
        try:
            return bytes([alphabet[char] for char in text])
        except KeyError:
            # Tokens added to the vocabulary by hand may hold plain text.
            return text.encode()

    return convert


def _sentencepiece(byte_fallback: bool) -> Callable[[str], bytes]:
    def convert(text: str) -> bytes:
        byte = _BYTE_PIECE.fullmatch(text) if byte_fallback else None
        return bytes([int(byte[1], 16)]) if byte else text.replace(SPACE_MARK, " ").encode()

    return convert
