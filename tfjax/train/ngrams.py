"""Counts what follows the last one to three tokens in replies, and keeps what helps most in a given size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfjax.engine.table import Order, keys_of
from tfjax.lanes.table_drafts import LEAST_CHANCE, LONGEST, TOKEN_BITS
from tfjax.train.shards import WrittenReply

TRUST = 4.0
"""A context's own counts weigh against so many imagined ones, spread as after its shorter context."""

SHARPNESS = 0.1
"""What knowing a guess's chance better is worth, beside the landings: chains end at the right place."""

type Ids = NDArray[np.int64]
type Chances = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Grams:
    """Every pair of a context and a token that followed it.

    Attributes:
        contexts: [C, length] token ids, rising.
        seen: [C], how often each was followed by anything.
        first: [C + 1], where each context's pairs start.
        tokens: [P], the tokens that followed, rising within a context.
        chances: [P], how often they did, smoothed by the shorter context's.
    """

    contexts: Ids
    seen: Ids
    first: Ids
    tokens: Ids
    chances: Chances

    @property
    def owners(self) -> Ids:
        """[P], each pair's context."""
        return np.repeat(np.arange(len(self.contexts)), np.diff(self.first))

    def place_of(self, contexts: Ids) -> Ids:
        """Numbers of contexts that all occur. Shape: [N, length] -> [N]."""
        return np.searchsorted(keys_of(self.contexts), keys_of(contexts))

    def chance_of(self, contexts: Ids, tokens: Ids) -> Chances:
        """Chances of tokens after contexts that all occur; 0 where the token never followed. Shape: [N]."""
        pairs = self.owners << TOKEN_BITS | self.tokens
        wanted = self.place_of(contexts) << TOKEN_BITS | tokens
        place = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        return np.where(pairs[place] == wanted, self.chances[place], 0.0)


@dataclass(frozen=True, slots=True)
class Windows:
    """Every token of the replies with those before it.

    Attributes:
        tokens: [N], the tokens that are predicted.
        before: [N, LONGEST], what stands before each, the nearest last; -1 before the beginning.
    """

    tokens: Ids
    before: Ids


def windows(replies: Iterable[WrittenReply]) -> Windows:
    """Only reply tokens are predicted; what stands before them may belong to the prompt."""
    tokens: list[Ids] = []
    before: list[Ids] = []
    for reply in replies:
        if not reply.reply:
            continue
        tail = np.full(LONGEST, -1)
        if reply.prompt:
            tail[-len(reply.prompt) :] = reply.prompt[-LONGEST:]
        text = np.concatenate([tail, np.array(reply.reply, np.int64)])
        tokens.append(text[LONGEST:])
        before.append(np.lib.stride_tricks.sliding_window_view(text[:-1], LONGEST))
    return Windows(np.concatenate(tokens), np.concatenate(before))


def count(found: Windows) -> list[Grams]:
    """Grams of contexts of 1, 2 and 3 tokens."""
    orders: list[Grams] = []
    for length in range(1, LONGEST + 1):
        usable = found.before[:, LONGEST - length] >= 0
        orders.append(_count(found.before[usable, LONGEST - length :], found.tokens[usable], orders[-1:]))
    return orders


def _count(before: Ids, tokens: Ids, shorter: Sequence[Grams]) -> Grams:
    rows = np.column_stack([before, tokens])
    rows = rows[np.lexsort(rows.T[::-1])]
    is_new = np.ones(len(rows), bool)
    is_new[1:] = (rows[1:] != rows[:-1]).any(1)
    pairs = rows[is_new]
    counts = np.diff(np.append(np.flatnonzero(is_new), len(rows)))
    is_new = np.ones(len(pairs), bool)
    is_new[1:] = (pairs[1:, :-1] != pairs[:-1, :-1]).any(1)
    first = np.append(np.flatnonzero(is_new), len(pairs))
    seen = np.add.reduceat(counts, first[:-1])
    contexts = pairs[is_new, :-1]
    owners = np.repeat(np.arange(len(contexts)), np.diff(first))
    behind = shorter[0].chance_of(contexts[owners, 1:], pairs[:, -1]) if shorter else np.zeros(len(pairs))
    chances = (counts + TRUST * behind) / (seen[owners] + TRUST)
    return Grams(contexts, seen, first, pairs[:, -1], chances)


@dataclass(frozen=True, slots=True)
class Guesses:
    """The best guess after each context of one length.

    Attributes:
        tokens, chances: [C], the likeliest token and its chance.
        gains: [C], drafts that the entry lands more than its shorter context would, over all replies.
    """

    tokens: Ids
    chances: Chances
    gains: Chances


def guesses(orders: Sequence[Grams]) -> list[Guesses]:
    """Guesses of each length, judged against what the shorter contexts would say in their place."""
    found: list[Guesses] = []
    for length, grams in enumerate(orders, start=1):
        best = np.lexsort((grams.tokens, -grams.chances, grams.owners))[grams.first[:-1]]
        tokens, chances = grams.tokens[best], grams.chances[best]
        other_chances = other_lands = np.zeros(len(tokens))
        if found:
            behind = orders[length - 2].place_of(grams.contexts[:, 1:])
            other_chances = found[-1].chances[behind]
            other_lands = grams.chance_of(grams.contexts, found[-1].tokens[behind])
        worth = np.where(chances >= LEAST_CHANCE, chances - LEAST_CHANCE, 0)
        other_worth = np.where(other_chances >= LEAST_CHANCE, other_lands - LEAST_CHANCE, 0)
        gains = grams.seen * (worth - other_worth + SHARPNESS * np.abs(chances - other_chances))
        found.append(Guesses(tokens, chances, gains))
    return found


def prune(orders: Sequence[Grams], found: Sequence[Guesses], most_bytes: int, vocab_size: int) -> list[Order]:
    """The entries with the largest gains per byte that fit into the size."""
    kind = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    sizes = [(length + 1) * np.dtype(kind).itemsize + 1 for length in range(1, len(orders) + 1)]
    rates = np.concatenate([guess.gains / size for guess, size in zip(found, sizes, strict=True)])
    costs = np.repeat(sizes, [len(guess.gains) for guess in found])
    ranked = np.argsort(-rates, kind="stable")
    fits = (np.cumsum(costs[ranked]) <= most_bytes) & (rates[ranked] > 0)
    kept = np.zeros(len(rates), bool)
    kept[ranked[fits]] = True
    bounds = np.cumsum([len(guess.gains) for guess in found])[:-1]
    return [
        Order(
            grams.contexts[keep].astype(kind),
            guess.tokens[keep].astype(kind),
            np.rint(255 * guess.chances[keep]).astype(np.uint8),
        )
        for grams, guess, keep in zip(orders, found, np.split(kept, bounds), strict=True)
    ]
