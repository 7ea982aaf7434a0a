"""Answers against the dense forward: greedy ones token by token, drawn ones by their frequencies; rows taken again."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train.tiny_run import VOCAB, write_target
from tfjax.checkpoints import open_checkpoint
from tfjax.train.dense_target import DenseTarget, TargetShape, TargetWeights, read_target
from tfjax.train.llama_sample import Answering, Asked, Llama, ask, go_on, llama_of, nothing_asked
from tfjax.train.small_dense import Shape, places, rms_norm

ROOM, MOST_NEW, GROUP = 9, 7, 4


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> DenseTarget:
    return read_target(open_checkpoint(write_target(tmp_path_factory.mktemp("model") / "target")), jnp.float32)


@pytest.fixture(scope="module")
def llama(target: DenseTarget) -> Llama:
    return llama_of(target.weights)


def shape_of(target: DenseTarget) -> Shape:
    assert isinstance(target.shape.config, Shape)
    return target.shape.config


def logits(target: DenseTarget, tokens: list[int]) -> jax.Array:
    """After a sequence, by the forward that training reads. Shape: [V]."""
    padded = jnp.asarray([tokens + [0] * (ROOM + MOST_NEW - len(tokens))])
    return _logits(target.weights, padded, target.shape)[len(tokens) - 1]


@functools.partial(jax.jit, static_argnums=2)
def _logits(weights: TargetWeights, token: jax.Array, shape: TargetShape) -> jax.Array:
    at = places(jnp.zeros_like(token), jnp.arange(token.shape[1])[None])
    x, _ = shape.forward(weights.body, shape.config, token, at, (0,))
    return (rms_norm(x, weights.norm, shape.norm_eps) @ weights.head.T)[0]


def prompt(number: int) -> list[int]:
    chance = np.random.default_rng(number)
    return chance.integers(0, VOCAB, 1 + number % ROOM).tolist()


def asked(rows: dict[int, list[int]], temperature: float = 0.0, seed: int = 0, group: int = GROUP) -> Asked:
    """Prompts for rows; what is left of the group names a row that is not there."""
    table = np.full((group, ROOM), 7, np.int32)
    row, length = np.full(group, 9999, np.int32), np.ones(group, np.int32)
    for place, (number, tokens) in enumerate(rows.items()):
        row[place], length[place], table[place, : len(tokens)] = number, len(tokens), tokens
    fill = np.full(group, temperature, np.float32), np.arange(group).astype(np.uint32) + np.uint32(seed)
    return Asked(*map(jnp.asarray, (row, table, length, *fill)))


def replies(state: Answering) -> dict[int, list[int]]:
    drawn, replied = np.asarray(state.drawn), np.asarray(state.replied)
    return {row: drawn[row, : replied[row]].tolist() for row in range(len(drawn))}


def likeliest(target: DenseTarget, tokens: list[int], count: int) -> list[int]:
    """What the model goes on with, one whole forward for each token."""
    known = list(tokens)
    for _ in range(count):
        known.append(int(jnp.argmax(logits(target, known))))
    return known[len(tokens) :]


def test_greedy_replies_are_the_likeliest_tokens_also_in_rows_taken_again(target: DenseTarget, llama: Llama) -> None:
    shape = shape_of(target)
    state = nothing_asked(llama, shape, 3, ROOM, MOST_NEW)
    state = ask(llama, state, asked({0: prompt(8), 2: prompt(1)}), shape)
    state = go_on(llama, state, shape, 4, ())
    assert replies(state) == {0: likeliest(target, prompt(8), 4), 1: [], 2: likeliest(target, prompt(1), 4)}
    state = ask(llama, state, asked({1: prompt(3), 2: prompt(5)}), shape)  # row 2 was under way and is asked anew
    state = go_on(llama, state, shape, 5, ())
    assert replies(state) == {
        0: likeliest(target, prompt(8), MOST_NEW),
        1: likeliest(target, prompt(3), 5),
        2: likeliest(target, prompt(5), 5),
    }
    assert np.asarray(state.alive).tolist() == [False, True, True]


def test_a_reply_ends_with_an_end_token_and_nothing_follows_it(target: DenseTarget, llama: Llama) -> None:
    shape = shape_of(target)
    whole = likeliest(target, prompt(8), MOST_NEW)
    end = whole[2]
    expected = whole[: whole.index(end) + 1]
    state = ask(llama, nothing_asked(llama, shape, 2, ROOM, MOST_NEW), asked({1: prompt(8)}), shape)
    state = go_on(llama, state, shape, MOST_NEW + 3, (VOCAB + 5, end))
    assert replies(state) == {0: [], 1: expected}
    assert not np.asarray(state.alive).any()


def test_draws_have_the_models_frequencies(target: DenseTarget, llama: Llama) -> None:
    shape, temperature, rows = shape_of(target), 0.4, 2000
    state = nothing_asked(llama, shape, rows, ROOM, 1)
    state = ask(llama, state, asked({row: prompt(4) for row in range(rows)}, temperature, group=rows), shape)
    found = np.array([reply[0] for reply in replies(go_on(llama, state, shape, 1, ())).values()])
    expected = np.asarray(jax.nn.softmax(logits(target, prompt(4)) / temperature))
    top = int(expected.argmax())
    assert 0.05 < expected[top] < 0.95
    deviation = np.sqrt(expected[top] * (1 - expected[top]) / rows)
    assert abs((found == top).mean() - expected[top]) < 4 * deviation


def test_seed_and_place_decide_the_draws_in_any_row(target: DenseTarget, llama: Llama) -> None:
    shape = shape_of(target)

    def drawn(rows: tuple[int, ...], seed: int) -> list[list[int]]:
        state = nothing_asked(llama, shape, 4, ROOM, MOST_NEW)
        state = ask(llama, state, asked(dict.fromkeys(rows, prompt(4)), 50.0, seed), shape)
        found = replies(go_on(llama, state, shape, MOST_NEW, ()))
        return [found[row] for row in rows]

    first, other = drawn((0, 1), 5)
    assert drawn((3, 2), 5) == [first, other]
    assert drawn((0,), 6) == [other]
    assert first != other
    assert len(set(first)) > MOST_NEW // 2
