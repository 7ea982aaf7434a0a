from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tfjax.models.blocks.markov import MarkovHead, MarkovKind, MarkovSizes

SIZES = MarkovSizes(rank=4, hidden=6, vocab=10, previous=10, drafts=10)


def random_head(kind: MarkovKind, sizes: MarkovSizes = SIZES, dtype: Any = jnp.float32) -> MarkovHead:
    head = MarkovHead(kind, sizes, dtype)
    random = np.random.default_rng(0)

    def fill(leaf: jax.Array) -> jax.Array:
        return leaf if leaf.dtype == jnp.int32 else jnp.asarray(random.normal(0, 1, leaf.shape), leaf.dtype)

    nnx.update(head, jax.tree.map(fill, nnx.state(head)))
    return head


H = jnp.asarray(np.random.default_rng(1).normal(0, 1, (3, 6)), jnp.float32)


def test_vanilla_is_a_table_of_pairs() -> None:
    head = random_head(MarkovKind.VANILLA)
    bias, state = head(head.start(3), jnp.array([2, 9, 0]), H)
    np.testing.assert_allclose(bias, head.w1[...][jnp.array([2, 9, 0])] @ head.w2[...].T, rtol=1e-5, atol=1e-5)
    assert state.shape == (3, 0)
    other, _ = head(state, jnp.array([2, 9, 0]), -H)
    assert np.array_equal(bias, other)


@pytest.mark.parametrize("kind", [MarkovKind.GATED, MarkovKind.RNN])
def test_others_read_the_hidden_row(kind: MarkovKind) -> None:
    head = random_head(kind)
    previous = jnp.array([2, 9, 0])
    bias, _ = head(head.start(3), previous, H)
    other, _ = head(head.start(3), previous, -H)
    assert bias.shape == (3, 10)
    assert not np.allclose(bias, other, atol=1e-2)


def test_only_rnn_remembers() -> None:
    head = random_head(MarkovKind.RNN)
    first, state = head(head.start(3), jnp.array([2, 9, 0]), H)
    second, later = head(state, jnp.array([2, 9, 0]), H)
    assert state.shape == later.shape == (3, 4)
    assert not np.allclose(first, second, atol=1e-2)


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def test_the_recurrence() -> None:
    """Thirds of the product, in this order: how much of the state is kept, its candidate, and what is put out."""
    head = random_head(MarkovKind.RNN)
    assert head.joint is not None
    weight, bias = np.asarray(head.joint.weight[...]), np.asarray(head.joint.bias[...])
    state, expected = head.start(3), np.zeros((3, 4))
    for previous in ([2, 9, 0], [1, 1, 7], [3, 0, 2]):
        e = np.asarray(head.w1[...])[previous]
        kept, candidate, out = np.split(np.concatenate([expected, e, H], 1) @ weight.T + bias, 3, 1)
        found, state = head(state, jnp.array(previous), H)
        expected = logistic(kept) * expected + (1 - logistic(kept)) * np.tanh(candidate)
        np.testing.assert_allclose(state, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found, np.tanh(out) @ np.asarray(head.w2[...]).T, rtol=1e-4, atol=1e-5)


def test_the_gate() -> None:
    head = random_head(MarkovKind.GATED)
    assert head.gate is not None
    e = np.asarray(head.w1[...])[[2, 9, 0]]
    gate = np.concatenate([H, e], 1) @ np.asarray(head.gate.weight[...]).T + np.asarray(head.gate.bias[...])
    bias, _ = head(head.start(3), jnp.array([2, 9, 0]), H)
    np.testing.assert_allclose(bias, (logistic(gate) * e) @ np.asarray(head.w2[...]).T, rtol=1e-4, atol=1e-5)


def test_a_first_matrix_of_draft_rows_alone() -> None:
    """Tokens that cannot be drafted have no row: they give zeros, and not some other token's."""
    head = random_head(MarkovKind.VANILLA, replace(SIZES, previous=3, drafts=3))
    head.know(jnp.array([1, 4, 9], jnp.int32), 10)
    embedded = np.asarray(head.embed(jnp.arange(10)))
    assert np.array_equal(embedded[[1, 4, 9]], head.w1[...])
    assert not embedded[[0, 2, 3, 5, 6, 7, 8]].any()
    bias, _ = head(head.start(2), jnp.array([4, 5]), H[:2])
    assert bias[0].any()
    assert not bias[1].any()


def test_padding_rows_get_no_bias() -> None:
    head = random_head(MarkovKind.VANILLA)
    whole, _ = head(head.start(3), jnp.array([2, 9, 0]), H)
    head.know(jnp.arange(7, dtype=jnp.int32), 10)
    cut, _ = head(head.start(3), jnp.array([2, 9, 0]), H)
    assert cut.shape == (3, 7)
    np.testing.assert_allclose(cut, whole[:, :7], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", MarkovKind)
def test_the_bias_is_float32_in_any_precision(kind: MarkovKind) -> None:
    head = random_head(kind, dtype=jnp.bfloat16)
    bias, state = head(head.start(3), jnp.array([2, 9, 0]), H.astype(jnp.bfloat16))
    again, _ = head(state, jnp.array([2, 9, 0]), H.astype(jnp.bfloat16))
    assert bias.dtype == state.dtype == again.dtype == jnp.float32
