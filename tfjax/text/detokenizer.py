"""Text from tokens, as they come."""

from __future__ import annotations

import codecs
from typing import Protocol


class TokenBytes(Protocol):
    """What a detokenizer asks of a tokenizer."""

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes of a token, b"" for those that are not shown."""


class Detokenizer:
    """Decodes one stream. The pieces joined equal the whole decoded at once.

    A character split over tokens is held back until it is whole; bytes that can never become a character turn into
    U+FFFD once, as soon as that is certain.
    """

    def __init__(self, tokenizer: TokenBytes) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that this token completes; may be empty."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """What is left at the end of the stream: U+FFFD when it ended within a character, else nothing."""
        return self._decoder.decode(b"", final=True)
