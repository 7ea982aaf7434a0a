"""Replies as training material: what is held out, which tokens can be drafted, and rows of equal length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfjax.train.shards import read_recipe, read_replies

PAD, PROMPT, REPLY, CONTEXT = 0, 1, 2, 3
"""Kinds of token. CONTEXT is a token that another row counts and this one only reads."""

HELD_OUT_ONE_IN = 50

type Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Document:
    """A prompt with its reply.

    Attributes:
        token: prompt and reply. Shape: [n].
        reply_start: index of the reply's first token.
        greedy: the reply was drawn at temperature 0.
        held_out: kept for measuring.
    """

    token: Ints
    reply_start: int
    greedy: bool
    held_out: bool

    @property
    def reply(self) -> Ints:
        return self.token[self.reply_start :]


class Packed(NamedTuple):
    """Documents laid end to end in rows of one length.

    Shapes: int32 [rows, length] each. `segment` counts the pieces of a row from 1, 0 where there is none; `position`
    counts from each piece's start; `kind` is one of the kinds above.
    """

    token: Any
    segment: Any
    position: Any
    kind: Any


class _Piece(NamedTuple):
    token: Ints
    kind: Ints


def read_documents(directory: Path) -> list[Document]:
    """All replies of a directory. Every 50th prompt is held out.

    Raises:
        ValueError: the directory holds no replies, or a damaged shard.
    """
    read_recipe(directory)
    documents = [
        Document(
            token=np.array(reply.prompt + reply.reply, np.int32),
            reply_start=len(reply.prompt),
            greedy=reply.temperature == 0,
            held_out=reply.index % HELD_OUT_ONE_IN == 0,
        )
        for reply in read_replies(directory)
    ]
    if not documents:
        raise ValueError(f"{directory} has a recipe and no replies yet; let `tfjax train replies` write some")
    return documents


def check_recipe(directory: Path, recipe: Mapping[str, Any], *, model: str, vocabulary: str) -> None:
    """Whether replies were written by this target.

    Raises:
        ValueError: naming both sides and what to do.
    """
    if recipe.get("vocabulary") != vocabulary:
        raise ValueError(
            f"{directory} holds replies of {recipe.get('model')!r} in the vocabulary {recipe.get('vocabulary')!r}, and "
            f"{model!r} has {vocabulary!r}; give the model that wrote them as --model, or write replies with this one"
        )
    if recipe.get("model") != model:
        raise ValueError(
            f"{directory} holds replies of {recipe.get('model')!r}, and the drafter is to imitate {model!r}; "
            "give the model that wrote them as --model, or write replies with this one"
        )


def draft_vocabulary(documents: Sequence[Document], vocab: int, size: int) -> Ints:
    """The `size` most frequent tokens of the replies, in rising order; unseen ones with low ids fill up.

    Raises:
        ValueError: a token is not in the vocabulary.
    """
    largest = max(int(document.token.max(initial=0)) for document in documents)
    if largest >= vocab:
        raise ValueError(f"a reply has token {largest}, and the vocabulary ends at {vocab - 1}")
    counts = np.bincount(_replies(documents), minlength=vocab)
    return np.sort(np.argsort(-counts, kind="stable")[:size]).astype(np.int32)


def coverage(documents: Sequence[Document], draft_ids: Ints) -> float:
    """Share of reply tokens that can be drafted."""
    return float(np.isin(_replies(documents), draft_ids).mean())


def _replies(documents: Sequence[Document]) -> Ints:
    return np.concatenate([document.reply for document in documents])


def pack(documents: Sequence[Document], length: int) -> Packed:
    """Lay documents into rows, longest first, each into the fullest row that has room.

    A document longer than a row is cut; every piece but the first begins with a quarter row of the one before, which it
    only reads.
    """
    pieces = sorted((piece for document in documents for piece in _cut(document, length)), key=lambda p: -len(p.token))
    rows: list[list[_Piece]] = []
    with_room: list[list[int]] = [[] for _ in range(length + 1)]  # row numbers by free places
    for piece in pieces:
        need = len(piece.token)
        free = next((free for free in range(need, length) if with_room[free]), length)
        if free == length:
            rows.append([])
            row = len(rows) - 1
        else:
            row = with_room[free].pop()
        rows[row].append(piece)
        with_room[free - need].append(row)
    packed = Packed(*(np.zeros((len(rows), length), np.int32) for _ in Packed._fields))
    for row, content in enumerate(rows):
        start = 0
        for number, piece in enumerate(content, start=1):
            stop = start + len(piece.token)
            packed.token[row, start:stop] = piece.token
            packed.segment[row, start:stop] = number
            packed.position[row, start:stop] = np.arange(stop - start)
            packed.kind[row, start:stop] = piece.kind
            start = stop
    return packed


def _cut(document: Document, length: int) -> Iterable[_Piece]:
    kind = np.full(len(document.token), REPLY, np.int32)
    kind[: document.reply_start] = PROMPT
    overlap = length // 4
    start = 0
    while True:
        stop = min(start + length, len(kind))
        piece = _Piece(document.token[start:stop], kind[start:stop].copy())
        if start:
            piece.kind[:overlap] = CONTEXT
        yield piece
        if stop == len(kind):
            return
        start = stop - overlap


def rows_of_steps(seed: int, rows: int, batch: int, first: int, count: int) -> Ints:
    """Which rows each step takes: one shuffle of all rows after another, cut into batches.

    It depends on the step's number alone, so that a resumed run takes the rows that the other would have taken.

    Shape: [count, batch].
    """
    start, stop = first * batch, (first + count) * batch
    epochs = range(start // rows, (stop - 1) // rows + 1)
    order = np.concatenate([np.random.default_rng([seed, epoch]).permutation(rows) for epoch in epochs])
    offset = epochs.start * rows
    return order[start - offset : stop - offset].reshape(count, batch).astype(np.int32)
