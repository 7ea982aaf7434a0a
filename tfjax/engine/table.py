"""The file of a table of frequent continuations: safetensors, checked against the tokenizer that it is used with."""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.lanes.table_drafts import LONGEST, TOKEN_BITS, Continuations, Table
from tfjax.text.tokenizer import Tokenizer

FORMAT = "tfjax-table-1"
MOST_BYTES = 256 << 20


class TableError(ValueError):
    """A table that cannot be used. The message names file, problem and remedy."""


@dataclass(frozen=True, slots=True)
class Order:
    """Contexts of one length, in rising order.

    Attributes:
        contexts: [N, length] token ids.
        tokens: [N], what follows.
        chances: [N] uint8, how often it does, in 255ths.
    """

    contexts: NDArray[Any]
    tokens: NDArray[Any]
    chances: NDArray[np.uint8]


def vocabulary_hash(tokenizer: Tokenizer) -> str:
    """SHA-256 over every token's bytes and whether it is special: equal for equal vocabularies in any file format."""
    digest = hashlib.sha256()
    for token in range(tokenizer.vocab_size):
        text = tokenizer.token_bytes(token)
        digest.update(struct.pack("<I?", len(text), tokenizer.is_special(token)) + text)
    return digest.hexdigest()


def load_table(path: Path, tokenizer: Tokenizer) -> Table:
    """Read a table for this tokenizer.

    Raises:
        TableError: no such file, a damaged one, or one for another vocabulary.
    """
    tensors, metadata = _read(path)
    if metadata.get("format") != FORMAT:
        raise TableError(f"{path} is no table: its format is {metadata.get('format')!r}, {FORMAT!r} is expected")
    if metadata.get("vocabulary") != vocabulary_hash(tokenizer):
        raise TableError(
            f"{path} was made for another vocabulary; make one for this model with `tfjax train replies` and "
            "`tfjax train table`"
        )
    longest = len(tensors) // 3
    if not 1 <= longest <= LONGEST or set(tensors) != {name for n in range(1, longest + 1) for name in _names(n)}:
        raise TableError(
            f"{path} holds {sorted(tensors)}; a table has contexts, tokens and chances for up to {LONGEST} tokens"
        )
    orders = []
    for length in range(1, longest + 1):
        order = _order(path, tensors, length)
        _check(path, order, length, min(tokenizer.vocab_size, (1 << TOKEN_BITS) - 1))
        orders.append(_packed(order))
    return Table(orders)


def table_bytes(orders: Sequence[Order], vocabulary: str) -> bytes:
    """The file's content."""
    from safetensors.numpy import save

    tensors: dict[str, NDArray[Any]] = {}
    for length, order in enumerate(orders, start=1):
        arrays = (np.ascontiguousarray(order.contexts), order.tokens, order.chances)
        tensors |= dict(zip(_names(length), arrays, strict=True))
    content: bytes = save(tensors, {"format": FORMAT, "vocabulary": vocabulary})
    return content


def keys_of(contexts: NDArray[Any]) -> NDArray[np.uint64]:
    """Contexts [N, length] packed as `tfjax.lanes.table_drafts.key_of` does. Shape: [N]."""
    keys = np.zeros(len(contexts), np.uint64)
    for column in contexts.T:
        keys = keys << np.uint64(TOKEN_BITS) | column.astype(np.uint64)
    return keys


def _names(length: int) -> tuple[str, str, str]:
    return f"contexts_{length}", f"tokens_{length}", f"chances_{length}"


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], Mapping[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        if path.stat().st_size > MOST_BYTES:
            raise TableError(f"{path} has {path.stat().st_size} bytes; a table has at most {MOST_BYTES}")
        with safe_open(path, "numpy") as file:
            names = file.keys()
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except (SafetensorError, OSError, TypeError) as error:
        raise TableError(f"{path} cannot be read as a table: {error}; `tfjax train table` writes one") from error


def _order(path: Path, tensors: Mapping[str, NDArray[Any]], length: int) -> Order:
    contexts, tokens, chances = (tensors[name] for name in _names(length))
    shapes = (contexts.shape, tokens.shape, chances.shape)
    if shapes != ((len(tokens), length), (len(tokens),), (len(tokens),)):
        raise TableError(f"{path}: shapes {shapes} of contexts, tokens and chances of {length} do not go together")
    if {contexts.dtype, tokens.dtype} - {np.dtype(np.uint16), np.dtype(np.uint32)} or chances.dtype != np.uint8:
        raise TableError(f"{path}: number formats {contexts.dtype}, {tokens.dtype}, {chances.dtype} are not a table's")
    return Order(contexts, tokens, chances)


def _check(path: Path, order: Order, length: int, vocab_size: int) -> None:
    largest = max(int(order.contexts.max(initial=0)), int(order.tokens.max(initial=0)))
    if largest >= vocab_size:
        raise TableError(f"{path}: token {largest} is not in the vocabulary of {vocab_size}")
    keys = keys_of(order.contexts)
    if not (keys[1:] > keys[:-1]).all():
        raise TableError(f"{path}: contexts of {length} tokens are not in rising order; write the table again")


def _packed(order: Order) -> Continuations:
    return Continuations(
        array("Q", keys_of(order.contexts).tobytes()),
        array("I", order.tokens.astype(np.uint32).tobytes()),
        array("B", order.chances.tobytes()),
    )
