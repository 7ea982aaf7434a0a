"""DSpark's module against a numpy oracle, and planted faults that the comparison must show."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.models.dspark_oracle import Drafted, Shape
from tests.models.dspark_streams import PROMPTS, BlockStreams, Pair, random_pair

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


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_block_is_the_oracles(shape: Shape) -> None:
    pair, features = random_pair(shape), random_features(shape)
    streams = BlockStreams(pair.module, len(PROMPTS))
    streams.absorb(features, [0] * len(PROMPTS))
    drafted = streams.block(ANCHORS, PROMPTS)
    assert agree(drafted, expected(pair, features))
    assert len({tuple(one.tokens) for one in drafted}) > 1
