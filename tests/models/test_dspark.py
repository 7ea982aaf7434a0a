"""DSpark's module against a numpy oracle, and planted faults that the comparison must show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.typing import NDArray

from tests.models.dspark_oracle import Drafted, Shape
from tests.models.dspark_streams import PROMPTS, BlockStreams, Pair, random_pair
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.models import dspark
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.dspark import DSpark, DSparkLayer

REDUCED = (3, 5, 8, 9, 14, 20, 27, 33, 34, 40, 41, 50, 58, 63)
SHAPES: dict[str, Shape] = {
    "as DeepSpec's": Shape(),
    "as LiquidAI's": Shape(interleaved=True),
    "gated": Shape(markov="gated"),
    "rnn": Shape(markov="rnn", interleaved=True, anchor_first=False),
    "slot 1": Shape(anchor_first=False),
    "norm after rotation": Shape(order="after_rope"),
    "norm after interleaved rotation": Shape(order="after_rope", interleaved=True),
    "no norm": Shape(order="none"),
    "reduced": Shape(ids=REDUCED),
    "reduced, Markov head too": Shape(ids=REDUCED, w1_rows=len(REDUCED), markov="gated"),
    "confidence of hidden rows, calibrated": Shape(
        confidence_with_markov=False, temperatures=(0.5, 1.0, 2.0, 3.0, 4.0)
    ),
    "one query head, block of 1": Shape(heads=3, kv_heads=3, head_dim=6, block=1),
}
ANCHORS = (7, 63, 0, 31, 58, 61)
"""Among them tokens without a draft id, padding and the mask token."""


def random_features(shape: Shape, seed: int = 2) -> list[NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return [random.normal(0, 1, (rows, shape.taps * shape.hidden)).astype(np.float32) for rows in PROMPTS]


def expected(pair: Pair, features: list[NDArray[np.float32]], anchors: tuple[int, ...] = ANCHORS) -> list[Drafted]:
    return [pair.oracle.draft(rows.astype(np.float64), anchor) for rows, anchor in zip(features, anchors, strict=True)]


def agree(one: list[Drafted], other: list[Drafted]) -> bool:
    """Equal picks, and confidences within 1e-3."""
    return [drafted.tokens for drafted in one] == [drafted.tokens for drafted in other] and np.allclose(
        [drafted.confidences for drafted in one], [drafted.confidences for drafted in other], rtol=0, atol=1e-3
    )


def drafted_by(pair: Pair, features: list[NDArray[np.float32]]) -> list[Drafted]:
    streams = BlockStreams(pair.module, len(PROMPTS))
    streams.absorb(features, [0] * len(PROMPTS))
    return streams.block(ANCHORS, PROMPTS)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_block_is_the_oracles(shape: Shape) -> None:
    pair, features = random_pair(shape), random_features(shape)
    drafted = drafted_by(pair, features)
    assert agree(drafted, expected(pair, features))
    assert len({tuple(one.tokens) for one in drafted}) > 1


def test_rounds_and_chunks() -> None:
    """Context in pieces, blocks between them whose own rows are overwritten, and tiles shorter than a block."""
    shape = SHAPES["as LiquidAI's"]
    pair, features = random_pair(shape), random_features(shape)
    kept = [3, 1, 5, 2, 6, 4]
    more = [np.random.default_rng(9).normal(0, 1, (rows, 64)).astype(np.float32) for rows in kept]
    streams = BlockStreams(pair.module, len(PROMPTS), tile_rows=2)
    first = [rows[:40] for rows in features]
    streams.absorb(first, [0] * len(PROMPTS))
    streams.block(ANCHORS, [len(rows) for rows in first])
    streams.absorb([rows[40:] for rows in features], [len(rows) for rows in first])
    assert agree(streams.block(ANCHORS, PROMPTS), expected(pair, features))
    streams.absorb(more, PROMPTS)
    whole = [np.concatenate(parts) for parts in zip(features, more, strict=True)]
    assert agree(streams.block(ANCHORS, [len(rows) for rows in whole]), expected(pair, whole))


def test_a_context_that_begins_later() -> None:
    """Pages that the drafter does not know are left out of what is read; positions stay those of the stream."""
    shape = SHAPES["as DeepSpec's"]
    pair = random_pair(shape)
    features = random_features(shape)[-1]
    streams = BlockStreams(pair.module, 1)
    streams.absorb([features[PAGE_ROWS:]], [PAGE_ROWS])
    streams.read_from = 1
    (late,) = streams.block(ANCHORS[:1], [len(features)])
    # Angles between rows do not change when all positions shift.
    assert agree([late], [pair.oracle.draft(features[PAGE_ROWS:].astype(np.float64), ANCHORS[0])])


class Faulty(BlockStreams):
    """Faults in how a server would drive a drafter."""

    def __init__(self, fault: str, module: DSpark):
        super().__init__(module, len(PROMPTS))
        self.fault = fault

    def absorb(self, features: Sequence[NDArray[Any]], starts: Sequence[int]) -> None:
        if self.fault == "context shifted by a row":
            starts = [start + 1 for start in starts]
            self.cache = jax.tree.map(jnp.nan_to_num, self.cache)
        super().absorb(features, starts)
        if self.fault == "last row absorbed twice":
            super().absorb([rows[-1:] for rows in features], [len(rows) for rows in features])

    def block(self, anchors: Sequence[int], starts: Sequence[int]) -> list[Drafted]:
        shift = {"last row absorbed twice": 1, "anchor late by one": 1, "anchor early by one": -1}.get(self.fault, 0)
        self.cache = jax.tree.map(jnp.nan_to_num, self.cache) if shift > 0 else self.cache
        return super().block(anchors, [max(0, start + shift) for start in starts])

    def seen(self, last: NDArray[np.int32], own: NDArray[np.int32]) -> jax.Array:
        return super().seen(own if self.fault == "causal block" else last, own)

    def walk(self, h: jax.Array, anchors: Sequence[int]) -> list[Drafted]:
        if self.fault == "slot 0 discarded":
            h = jnp.concatenate([h[:, 1:], h[:, -1:]], 1)
        return super().walk(h, anchors)

    def before(self, previous: jax.Array, drawn: jax.Array) -> jax.Array:
        return previous if self.fault == "Markov token late by one" else drawn


DRIVING = (
    "context shifted by a row",
    "last row absorbed twice",
    "anchor late by one",
    "anchor early by one",
    "causal block",
    "slot 0 discarded",
    "Markov token late by one",
)


@pytest.mark.parametrize("fault", DRIVING)
def test_a_fault_in_driving_shows(fault: str) -> None:
    pair, features = random_pair(Shape()), random_features(Shape())
    streams = Faulty(fault, pair.module)
    streams.absorb(features, [0] * len(PROMPTS))
    assert not agree(streams.block(ANCHORS, PROMPTS), expected(pair, features))


CONFIGURED: dict[str, dict[str, Any]] = {
    "rotated in the other pairs": {"interleaved": True},
    "normed on the other side": {"qk_norm": QKNorm.AFTER_ROPE},
    "another theta": {"rope": RopeConfig(1e6)},
    "another norm's epsilon": {"norm_eps": 1e-1},
    "another mask token": {"mask_token": 60},
    "uncalibrated": {"confidence_temperatures": ()},
}


@pytest.mark.parametrize("changes", CONFIGURED.values(), ids=CONFIGURED)
def test_a_fault_in_the_config_shows(changes: dict[str, Any]) -> None:
    shape = Shape(temperatures=(0.5, 0.6, 2.0, 3.0, 4.0))
    pair = random_pair(shape, lambda config: replace(config, **changes))
    assert not agree(drafted_by(pair, random_features(shape)), expected(pair, random_features(shape)))


def test_context_through_the_layers_norm_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    absorb = dspark._absorb_layer

    def normed(definition: Any, state: Any, context: jax.Array, *rest: Any) -> Any:
        layer: DSparkLayer = nnx.merge(definition, state)
        return absorb(definition, state, layer.attention_norm(context), *rest)

    monkeypatch.setattr(dspark, "_absorb_layer", normed)
    pair = random_pair(Shape())
    assert not agree(drafted_by(pair, random_features(Shape())), expected(pair, random_features(Shape())))
