"""Anchors and blocks against a plain loop over the row."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.train.dspark_tiny import BATCH
from tfjax.train.dspark_blocks import can_anchor, lay_out, sample_anchors, take_states
from tfjax.train.small_data import REPLY, Packed

DEVICE = Packed(*map(jnp.asarray, BATCH))
ANCHORS = np.array([[2, 3, 4, 7, 12, 13, 14, 15], [3, 4, 5, 9, 11, 13, 14, 15]], np.int32)
MASK, DEPTH = 61, 4


def same_reply(row: int, one: int, other: int) -> bool:
    if other >= 16 or BATCH.segment[row, one] != BATCH.segment[row, other]:
        return False
    return bool((BATCH.kind[row, one : other + 1] == REPLY).all())


def test_an_anchor_is_a_replys_token_with_another_after_it() -> None:
    found = np.asarray(can_anchor(DEVICE))
    assert [[at for at in range(16) if found[row, at]] for row in range(2)] == [
        [2, 3, *range(7, 14)],
        list(range(4, 15)),
    ]


def test_blocks_are_those_of_a_plain_loop() -> None:
    blocks = jax.tree.map(np.asarray, lay_out(DEVICE, jnp.asarray(ANCHORS), DEPTH, MASK))
    live = 0
    for row, places in enumerate(ANCHORS.tolist()):
        for n, anchor in enumerate(places):
            assert blocks.token[row, n].tolist() == [BATCH.token[row, anchor], MASK, MASK, MASK]
            assert blocks.position[row, n].tolist() == [BATCH.position[row, anchor] + k for k in range(DEPTH)]
            expected = [at < anchor and BATCH.segment[row, at] == BATCH.segment[row, anchor] for at in range(16)]
            assert blocks.seen[row, n].tolist() == expected
            for k in range(DEPTH):
                wanted = same_reply(row, anchor, anchor + k + 1)
                assert blocks.live[row, n, k] == wanted
                if wanted:
                    live += 1
                    assert blocks.previous[row, n, k] == BATCH.token[row, anchor + k]
                    assert blocks.label[row, n, k] == BATCH.token[row, anchor + k + 1]
                    assert blocks.source[row, n, k] == anchor + k
    assert 20 < live < ANCHORS.size * DEPTH


def test_states_are_those_before_the_labels() -> None:
    blocks = lay_out(DEVICE, jnp.asarray(ANCHORS), DEPTH, MASK)
    states = jnp.arange(2 * 16 * 3).reshape(2, 16, 3)
    found = np.asarray(take_states(states, blocks))
    assert found[1, 2, 3].tolist() == np.asarray(states)[1, 5 + 3].tolist()


def test_sampled_anchors_are_different_and_eligible_first() -> None:
    eligible = np.asarray(can_anchor(DEVICE))
    seen = set()
    for seed in range(20):
        found = np.asarray(sample_anchors(jax.random.key(seed), DEVICE, 5))
        for row in range(2):
            assert len(set(found[row].tolist())) == 5
            assert eligible[row, found[row]].all()
            seen |= {(row, at) for at in found[row].tolist()}
    assert len(seen) == eligible.sum()


def test_where_eligible_places_run_out_nothing_is_drafted() -> None:
    found = sample_anchors(jax.random.key(0), DEVICE, 12)
    live = np.asarray(lay_out(DEVICE, found, DEPTH, MASK).live)
    assert live[..., 0].sum(-1).tolist() == np.asarray(can_anchor(DEVICE)).sum(-1).tolist()
