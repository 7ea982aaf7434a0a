"""Counts and gains against plain dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfjax.train import ngrams
from tfjax.train.ngrams import SHARPNESS, TRUST, Grams, count, guesses, prune, windows
from tfjax.train.shards import WrittenReply

LEAST_CHANCE = 0.3
"""High enough that texts of few words have guesses on both sides of it."""

type Context = tuple[int, ...]

TEXTS = st.lists(
    st.tuples(st.lists(st.integers(0, 4), max_size=5), st.lists(st.integers(0, 4), min_size=1, max_size=30)),
    min_size=1,
    max_size=4,
)


def replies(texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[WrittenReply]:
    return [WrittenReply(i, "chat", 0.0, tuple(prompt), tuple(reply)) for i, (prompt, reply) in enumerate(texts)]


def plain_counts(texts: Sequence[tuple[Sequence[int], Sequence[int]]], length: int) -> dict[Context, Counter[int]]:
    found: dict[Context, Counter[int]] = defaultdict(Counter)
    for prompt, reply in texts:
        text = [*prompt, *reply]
        for place in range(len(prompt), len(text)):
            if place >= length:
                found[tuple(text[place - length : place])][text[place]] += 1
    return found


def plain_chances(texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[dict[Context, dict[int, float]]]:
    orders: list[dict[Context, dict[int, float]]] = []
    for length in (1, 2, 3):
        found: dict[Context, dict[int, float]] = {}
        for context, counter in plain_counts(texts, length).items():
            behind = orders[-1].get(context[1:], {}) if orders else {}
            found[context] = {
                token: (times + TRUST * behind.get(token, 0.0)) / (counter.total() + TRUST)
                for token, times in counter.items()
            }
        orders.append(found)
    return orders


def as_dict(grams: Grams) -> dict[Context, dict[int, float]]:
    found: dict[Context, dict[int, float]] = defaultdict(dict)
    for owner, token, chance in zip(grams.owners.tolist(), grams.tokens.tolist(), grams.chances.tolist(), strict=True):
        found[tuple(grams.contexts[owner].tolist())][token] = chance
    return found


def test_only_reply_tokens_are_predicted_and_the_prompt_is_context() -> None:
    found = windows(replies([([7, 8], [1, 2])]))
    assert found.tokens.tolist() == [1, 2]
    assert found.before.tolist() == [[-1, 7, 8], [7, 8, 1]]
    assert windows(replies([([4, 5, 6, 7, 8], [1])])).before.tolist() == [[6, 7, 8]]
    assert windows(replies([([], [1, 2])])).before.tolist() == [[-1, -1, -1], [-1, -1, 1]]


def test_replies_do_not_run_into_each_other() -> None:
    found = count(windows(replies([([], [1, 2]), ([], [3, 4])])))
    assert as_dict(found[0]).keys() == {(1,), (3,)}


@settings(deadline=None, max_examples=60)
@given(TEXTS)
def test_counts_and_chances_are_those_of_dictionaries(texts: list[tuple[list[int], list[int]]]) -> None:
    found = count(windows(replies(texts)))
    for length, (grams, expected) in enumerate(zip(found, plain_chances(texts), strict=True), start=1):
        counted = plain_counts(texts, length)
        contexts = [tuple(row) for row in grams.contexts.tolist()]
        assert contexts == sorted(counted)
        assert grams.seen.tolist() == [counted[context].total() for context in contexts]
        made = as_dict(grams)
        assert made.keys() == expected.keys()
        for context, chances in expected.items():
            assert made[context] == pytest.approx(chances)


@settings(deadline=None, max_examples=60)
@given(TEXTS)
def test_gains_are_what_a_shorter_context_would_miss(texts: list[tuple[list[int], list[int]]]) -> None:
    orders = count(windows(replies(texts)))
    chances = plain_chances(texts)
    said: dict[Context, tuple[int, float]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "LEAST_CHANCE", LEAST_CHANCE)
        best = guesses(orders)
    for length, (grams, found) in enumerate(zip(orders, best, strict=True), start=1):
        counted = plain_counts(texts, length)
        for row, context in enumerate(map(tuple, grams.contexts.tolist())):
            after = chances[length - 1][context]
            token = min(after, key=lambda one: (-round(after[one], 12), one))
            assert after[int(found.tokens[row])] == pytest.approx(after[token])
            token = int(found.tokens[row])
            assert found.chances[row] == pytest.approx(after[token])
            other, other_chance = said.get(context[1:], (-1, 0.0))
            worth = max(0.0, after[token] - LEAST_CHANCE)
            other_worth = after.get(other, 0.0) - LEAST_CHANCE if other_chance >= LEAST_CHANCE else 0.0
            gain = counted[context].total() * (worth - other_worth + SHARPNESS * abs(after[token] - other_chance))
            assert found.gains[row] == pytest.approx(gain, abs=1e-9)
            said[context] = (token, after[token])


def kept(
    texts: Sequence[tuple[Sequence[int], Sequence[int]]], most_bytes: int, vocab_size: int = 100
) -> list[dict[Context, int]]:
    orders = count(windows(replies(texts)))
    return [
        dict(zip(map(tuple, order.contexts.tolist()), order.tokens.tolist(), strict=True))
        for order in prune(orders, guesses(orders), most_bytes, vocab_size)
    ]


AGREEING = [([], [1, 2, 3, 4] * 20)]
"""Longer contexts say nothing that the last token does not."""
DEPENDING = [([], [1, 2, 3, 9, 2, 4] * 20)]
"""What follows a 2 depends on the token before it."""


def test_what_a_shorter_context_says_as_well_goes_first() -> None:
    small = kept(AGREEING, most_bytes=4 * 5)
    assert small[0] == {(1,): 2, (2,): 3, (3,): 4, (4,): 1}
    assert small[1:] == [{}, {}]


def test_a_longer_context_that_knows_better_is_kept() -> None:
    found = kept(DEPENDING, most_bytes=4 * 5 + 2 * 7)
    assert found[1].get((1, 2)) == 3 or found[0].get((2,)) == 3
    assert found[1].get((9, 2)) == 4 or found[0].get((2,)) == 4


@pytest.mark.parametrize(("vocab_size", "kind", "entry"), [(1 << 16, np.uint16, 5), ((1 << 16) + 1, np.uint32, 9)])
def test_the_size_is_kept(vocab_size: int, kind: type, entry: int) -> None:
    orders = count(windows(replies(AGREEING)))
    for room in (0, 1, 2, 3):
        found = prune(orders, guesses(orders), room * entry + entry - 1, vocab_size)
        assert sum(len(order.tokens) for order in found) == room
        assert {order.tokens.dtype for order in found} == {np.dtype(kind)}
        size = sum(order.contexts.nbytes + order.tokens.nbytes + order.chances.nbytes for order in found)
        assert size == room * entry


def test_contexts_stay_in_rising_order() -> None:
    random = np.random.default_rng(1)
    texts = [([], random.integers(0, 6, 300).tolist())]
    orders = count(windows(replies(texts)))
    for order in prune(orders, guesses(orders), 400, 100):
        rows = order.contexts.tolist()
        assert rows == sorted(rows)
        assert order.chances.min(initial=255) > 0
