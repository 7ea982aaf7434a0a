"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import tokenizers

from tfjax.text.pieces import token_bytes


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """What a checkpoint says about the tokens that mark a text's start and end.

    Attributes:
        bos_id: None when the model has none.
        eos_ids: tokens that end a reply, the main one first.
        add_bos: whether a prompt starts with `bos_id`.
    """

    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    add_bos: bool = False


class Tokenizer:
    """A model's tokenizer. Safe to use from several threads.

    Attributes:
        bos_id, eos_ids: as in `SpecialTokens`.
        chat_template: the model's own template, if it has one.
        vocab_size: one more than the largest token id.
    """

    def __init__(self, backend: tokenizers.Tokenizer, special: SpecialTokens, chat_template: str | None = None) -> None:
        """
        Raises:
            UnsupportedTokenizer: the tokens' bytes cannot be told.
        """
        self._parsing = backend
        # A second instance, because the switch is a property of the instance and not of the call.
        self._plain = tokenizers.Tokenizer.from_str(backend.to_str())
        self._plain.encode_special_tokens = True
        self._bytes = token_bytes(backend)
        self._special = frozenset(token for token, added in backend.get_added_tokens_decoder().items() if added.special)
        self._add_bos = special.add_bos and special.bos_id is not None
        self.bos_id = special.bos_id
        self.eos_ids = special.eos_ids
        self.chat_template = chat_template
        self.vocab_size = len(self._bytes)

    def encode(self, text: str, *, add_bos: bool | None = None, parse_special: bool = True) -> list[int]:
        """Token ids of `text`.

        Args:
            text: any text that has a UTF-8 form.
            add_bos: whether to start with the BOS token, unless the text itself does; None is the model's habit.
            parse_special: whether special tokens written in the text become those tokens or stay text.

        Raises:
            ValueError: the text holds a lone surrogate.
        """
        try:
            ids = (self._parsing if parse_special else self._plain).encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError) as error:
            raise ValueError(_surrogate_message(text)) from error
        wants_bos = self._add_bos if add_bos is None else add_bos
        if wants_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return list(ids)

    def decode(self, ids: Iterable[int], *, hide_special: bool = True) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self._shown(token, hide_special) for token in ids).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes of a token, b"" for special tokens and for ids without a token."""
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""

    def token_text(self, token: int) -> str:
        """A token as one may show it: its text, U+FFFD for partial characters, a special token's name."""
        return self._shown(token, hide_special=False).decode("utf-8", "replace")

    def token_id(self, text: str) -> int | None:
        """The id of the token written `text` in the vocabulary, such as a special token's."""
        token: int | None = self._parsing.token_to_id(text)
        return token

    def is_special(self, token: int) -> bool:
        return token in self._special

    @property
    def bos_token(self) -> str:
        """The BOS token as text, "" when there is none."""
        return self._name(self.bos_id)

    @property
    def eos_token(self) -> str:
        """The main EOS token as text, "" when there is none."""
        return self._name(self.eos_ids[0] if self.eos_ids else None)

    def _name(self, token: int | None) -> str:
        return "" if token is None else self._parsing.id_to_token(token) or ""

    def _shown(self, token: int, hide_special: bool) -> bytes:
        if hide_special or token not in self._special:
            return self.token_bytes(token)
        return self._name(token).encode()


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int, where: str) -> None:
    """Raises ValueError when the tokenizer can give ids that the model has no row for; spare rows are fine."""
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"{where}: the tokenizer has {tokenizer.vocab_size} token ids, but the model's vocab_size is {vocab_size}. "
            "The tokenizer belongs to another model."
        )


def _surrogate_message(text: str) -> str:
    position = next((index for index, char in enumerate(text) if "\ud800" <= char <= "\udfff"), 0)
    return f"text holds a lone surrogate at character {position}; it has no UTF-8 form"
