"""A tapped target with the drafter that listens to it, and its oracle, as tests use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.engine.drafters.pair import PROMPTS, Pair, memory_of, stream_on
from tests.engine.drafters.spark_pair import (
    BLOCK,
    Spark,
    another_spark,
    features_of,
    fresh_rows,
    known_rows,
    oracle_says,
)
from tests.models.dspark_oracle import Drafted
from tests.row_invariance import bits
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel
from tfjax.lanes.stream import Stream

MEMORY = memory_of()
LONG = tuple(np.random.default_rng(9).integers(0, 60, 140).tolist())


@dataclass(slots=True)
class Stage:
    """A target, the drafter that listens to it, and its oracle."""

    model: LoadedModel
    target: TargetBackend
    spark: Spark
    drafter: DSparkDrafter

    def on_lane(self, lane: int, prompt: Sequence[int] | None = None, **rules: Any) -> Stream:
        return stream_on(lane, PROMPTS[lane] if prompt is None else prompt, memory=MEMORY, **rules)

    def started(self, *streams: Stream, drafter: Any = None) -> Pair:
        pair = Pair(self.target, drafter or self.drafter)
        for stream in streams:
            pair.start(stream)
        return pair

    def fresh(self, **changes: Any) -> DSparkDrafter:
        """A drafter that knows nothing yet, and listens from here on."""
        return another_spark(self.drafter, self.target, **changes)

    def says(self, stream: Stream, block: int = BLOCK, first_page: int = 0) -> Drafted:
        """What the oracle drafts after the stream's context."""
        return oracle_says(self.spark, self.target, self.model, stream, block, first_page)

    def knows(self, drafter: DSparkDrafter, stream: Stream) -> bool:
        """Whether the context's rows are those of the whole context absorbed in one call."""
        committed = len(stream.context) - 1
        whole = fresh_rows(drafter, features_of(self.target, self.model, stream.context[:committed]))
        return all(
            (bits(own) == bits(other)).all()
            for own, other in zip(known_rows(drafter, stream, committed), whole, strict=True)
        )

    def unseen(self) -> Pair:
        """The target alone: its streams do not draft."""
        nobody: Any = SimpleNamespace(open=_ignore, absorb=_ignore, absorb_prompt=_ignore)
        return Pair(self.target, nobody)


def _ignore(*_: Any) -> None:
    """Nothing to do."""
