"""A tokenizer that needs no file: letters, single bytes of wider characters, and two pieces of a stop word."""

from __future__ import annotations

from collections.abc import Iterable

from tests.stubs import EOS, VOCAB

END_OF_TURN = 48
FAMILY = "👨‍👩‍👧‍👦"
WIDE = [*sorted(set((FAMILY + "漢é").encode())), 0xFF]
PIECES = [bytes([byte]) for byte in (*b"abcdefghijklmnopqrstuvwxyz ", *WIDE)] + [b"ST", b"OP", b"S", b"T", b"O", b"P"]
SPECIAL = {END_OF_TURN: "<|end|>", EOS: "</s>"}
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"

assert len(PIECES) == END_OF_TURN == VOCAB - 2


class Alphabet:
    """48 pieces of text and two ids that end a reply. Characters beyond ASCII are split over bytes."""

    vocab_size = VOCAB
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = (END_OF_TURN, EOS)
    bos_token = ""
    eos_token = "</s>"

    def __init__(self, chat_template: str | None = None) -> None:
        self.chat_template = chat_template

    def encode(self, text: str, *, add_bos: bool | None = None, parse_special: bool = True) -> list[int]:
        return spell(text.encode())

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        return PIECES[token] if token < len(PIECES) else b""

    def token_text(self, token: int) -> str:
        return SPECIAL.get(token) or self.token_bytes(token).decode("utf-8", "replace")

    def is_special(self, token: int) -> bool:
        return token in SPECIAL


def spell(text: str | bytes) -> list[int]:
    """Token ids of a text, one a byte."""
    return [PIECES.index(bytes([byte])) for byte in (text.encode() if isinstance(text, str) else text)]
