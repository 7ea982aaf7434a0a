"""Training's forward of DSpark against the served module and its numpy oracle, and what a block may not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.models.dspark_oracle import Drafted, Shape
from tests.models.dspark_streams import BlockStreams, random_pair
from tests.train import dspark_tiny
from tests.train.dspark_tiny import BATCH, REDUCED
from tfjax.models.dspark import DSpark
from tfjax.train.dspark_blocks import Blocks, lay_out
from tfjax.train.dspark_dense import block_states
from tfjax.train.small_data import REPLY, Packed

EVERY = tuple(range(64))
SHAPES: dict[str, Shape] = {
    "vanilla, half-split": Shape(ids=EVERY),
    "gated, interleaved, reduced": Shape(markov="gated", interleaved=True, ids=REDUCED, w1_rows=len(REDUCED)),
    "rnn, norm after rotation": Shape(markov="rnn", order="after_rope", ids=REDUCED, block=7),
    "no norm, interleaved": Shape(order="none", interleaved=True, ids=EVERY, layers=1),
}
LENGTH = 40
ANCHORS = (1, 6, 17, 30)


class Forced(BlockStreams):
    """The served module on the true tokens before each draft, one stream an anchor."""

    def __init__(self, module: DSpark, tokens: NDArray[np.int32]):
        super().__init__(module, len(ANCHORS))
        self.tokens = tokens
        self.h = self.logits = self.confidences = np.zeros(0)

    def walk(self, h: jax.Array, anchors: Sequence[int]) -> list[Drafted]:
        state = self.module.markov.start(len(anchors))
        logits, confidences = [], []
        for place in range(self.module.config.block):
            previous = jnp.asarray([self.tokens[anchor + place] for anchor in ANCHORS], jnp.int32)
            bias, state = self.module.markov(state, previous, h[:, place])
            logits.append(self.module.logits(h[:, place]) + bias)
            confidences.append(self.module.confidence(h[:, place], previous, place))
        self.h, self.logits, self.confidences = (np.asarray(x) for x in (h, jnp.stack(logits, 1), confidences))
        return []


def one_reply(seed: int = 3) -> tuple[Packed, NDArray[np.float32]]:
    """Tokens of one reply, some of them outside the draft vocabulary, and features of 2 taps."""
    random = np.random.default_rng(seed)
    token = random.integers(0, 64, (1, LENGTH)).astype(np.int32)
    ones = np.ones_like(token)
    batch = Packed(token, ones, np.arange(LENGTH, dtype=np.int32)[None], ones * REPLY)
    return Packed(*map(jnp.asarray, batch)), random.normal(0, 1, (1, LENGTH, 64)).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_it_is_the_served_module(shape: Shape) -> None:
    pair = random_pair(shape)
    config = dspark_tiny.config_of(shape)
    batch, features = one_reply()
    params = dspark_tiny.params_of(config, pair.oracle.w)
    head = np.zeros((64, 32))
    head[list(shape.ids)] = pair.oracle.head
    models = dspark_tiny.models_of(config, shape.ids, pair.oracle.embedding, head)
    h, logits, confidences = dspark_tiny.drafted(
        params, models, batch, jnp.asarray(features), jnp.asarray([ANCHORS]), config
    )

    tokens = np.asarray(batch.token)[0]
    streams = Forced(pair.module, tokens)
    streams.absorb([features[0, :anchor] for anchor in ANCHORS], [0] * len(ANCHORS))
    streams.block([int(tokens[anchor]) for anchor in ANCHORS], ANCHORS)
    np.testing.assert_allclose(h[0], streams.h, atol=1e-3)
    np.testing.assert_allclose(logits[0], streams.logits, atol=1e-3 * np.abs(streams.logits).max())
    np.testing.assert_allclose(confidences[0], streams.confidences.T, atol=1e-3)
    assert np.abs(streams.logits).max() > 1


def test_a_draft_is_the_oracles() -> None:
    """From features to the first draft, which no Markov walk has touched, by code that shares nothing."""
    shape = SHAPES["gated, interleaved, reduced"]
    pair, (batch, features) = random_pair(shape), one_reply()
    config = dspark_tiny.config_of(shape)
    params = dspark_tiny.params_of(config, pair.oracle.w)
    head = np.zeros((64, 32))
    head[list(shape.ids)] = pair.oracle.head
    models = dspark_tiny.models_of(config, shape.ids, pair.oracle.embedding, head)
    anchors = jnp.arange(1, LENGTH - 1)[None]
    _, logits, _ = dspark_tiny.drafted(params, models, batch, jnp.asarray(features), anchors, config)
    found = np.asarray(models.ids)[np.argmax(logits, -1)][0, :, 0].tolist()
    tokens = np.asarray(batch.token)[0]
    expected = [pair.oracle.draft(features[0, :at].astype(float), int(tokens[at])) for at in range(1, LENGTH - 1)]
    assert found == [drafted.tokens[0] for drafted in expected]
    assert len(set(found)) > 3


def changes(batch: Packed, blocks: Blocks, row: int) -> NDArray[np.bool_]:
    """For each place of a row, which of the row's blocks change when its feature does. Shape: [T, N]."""
    config = dspark_tiny.config_of(Shape(ids=EVERY))
    params = dspark_tiny.random_params(config)
    embedding = jnp.asarray(np.random.default_rng(1).normal(0, 1, (64, 32)), jnp.float32)
    features = jnp.asarray(np.random.default_rng(2).normal(0, 1, (*batch.token.shape, 64)), jnp.float32)

    @jax.jit
    def states(features: jax.Array) -> jax.Array:
        return block_states(params, embedding, features, batch.position, blocks, config)[row]

    plain = states(features)
    length = batch.token.shape[1]
    moved: list[Any] = [(states(features.at[row, at].add(3)) != plain).any((-1, -2)) for at in range(length)]
    return np.asarray(moved)


def expected_changes(batch: Packed, blocks: Blocks, row: int) -> NDArray[np.bool_]:
    """Places of the anchor's document before it."""
    segment, anchors = np.asarray(batch.segment)[row], np.asarray(blocks.anchor)[row].tolist()
    return np.array([[at < a and segment[at] == segment[a] for a in anchors] for at in range(len(segment))])


def test_a_block_sees_its_document_before_the_anchor_and_nothing_else() -> None:
    batch = Packed(*map(jnp.asarray, BATCH))
    blocks = lay_out(batch, jnp.asarray([[2, 3, 8, 12], [4, 6, 9, 14]]), 5, 61)
    for row in range(2):
        np.testing.assert_array_equal(changes(batch, blocks, row), expected_changes(batch, blocks, row))


@pytest.mark.parametrize("leak", ["anchor", "later", "other document"])
def test_a_leak_is_seen(leak: str) -> None:
    batch = Packed(*map(jnp.asarray, BATCH))
    blocks = lay_out(batch, jnp.asarray([[2, 3, 8, 12], [4, 6, 9, 14]]), 5, 61)
    at, anchor = jnp.arange(16), blocks.anchor[..., None]
    wrong = {
        "anchor": blocks.seen | (at == anchor),
        "later": blocks.seen | (at == anchor + 2),
        "other document": blocks.seen | (at < anchor),
    }[leak]
    leaking = blocks._replace(seen=wrong)
    assert (changes(batch, leaking, 0) != expected_changes(batch, leaking, 0)).any()


def test_blocks_do_not_see_each_other() -> None:
    batch = Packed(*map(jnp.asarray, BATCH))
    config = dspark_tiny.config_of(Shape(ids=EVERY))
    params = dspark_tiny.random_params(config)
    _, models = dspark_tiny.table_target(config, EVERY)
    features = jnp.asarray(np.random.default_rng(2).normal(0, 1, (2, 16, 64)), jnp.float32)

    def states(anchors: list[list[int]]) -> NDArray[np.float32]:
        return np.asarray(dspark_tiny.drafted(params, models, batch, features, jnp.asarray(anchors), config)[0])

    both, alone = states([[8, 9], [6, 7]]), states([[8], [6]])
    np.testing.assert_allclose(both[:, :1], alone, atol=1e-5)
