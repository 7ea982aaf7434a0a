"""Whether two tokenizers give every id the same token."""

from __future__ import annotations

from dataclasses import dataclass

from tfjax.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class DifferentToken:
    """The first id at which two tokenizers differ, and how each writes it (None: it has no such token)."""

    token: int
    one: str | None
    other: str | None


def first_difference(one: Tokenizer, other: Tokenizer) -> DifferentToken | None:
    """None where both have the same tokens. Ids without a token, as padding has them, may differ in number."""
    for token in range(max(one.vocab_size, other.vocab_size)):
        if _identity(one, token) != _identity(other, token):
            return DifferentToken(token, _spelled(one, token), _spelled(other, token))
    return None


def _identity(tokenizer: Tokenizer, token: int) -> tuple[bytes, str]:
    """What tells a token from all others: its bytes, or a special token's name."""
    special = tokenizer.is_special(token)
    return tokenizer.token_bytes(token), tokenizer.token_text(token) if special else ""


def _spelled(tokenizer: Tokenizer, token: int) -> str | None:
    return tokenizer.token_text(token) if any(_identity(tokenizer, token)) else None
