from __future__ import annotations

from typing import Any

import pytest

from benchmarks.blocks import Blocks
from benchmarks.goals import lfm2
from benchmarks.goals.lfm2 import measure_shape
from benchmarks.shapes import SHAPES, shrunk
from tfjax.engine.buckets import Plan, single_bucket_plan
from tfjax.engine.load import compile_buckets
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.step import Bucket, Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel, Progress


def one_bucket(model: LoadedModel, memory: MemoryPlan, progress: Progress) -> Any:
    """In place of a start that compiles and proves ten."""
    bucket = Bucket(64, 64, 16)
    plan = Plan(single_bucket_plan().arithmetic, (bucket,), (bucket,))
    backend = TargetBackend(model, Step(model.module), plan, memory)
    compile_buckets(backend, progress)
    return backend, None


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stream_is_timed_through_lane_loop_and_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lfm2, "start_backend", one_bucket)
    monkeypatch.setattr(lfm2, "TOKENS", 6)
    monkeypatch.setattr(lfm2, "PLAIN_S", 0.3)
    blocks = Blocks(1e4)
    measure_shape(blocks, shrunk(SHAPES[-1]), "auto")
    assert blocks.found["lane loop"]["value"] > 0
    assert blocks.found["engine"]["value"] > 0
    assert blocks.found["engine"]["note"].endswith(f"assumed: {SHAPES[-1].assumed}")
    assert blocks.found["start"]["operators"] == "reference"
    assert not blocks.failed


def test_one_that_does_not_start_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*asked: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(lfm2, "random_target", fail)
    blocks = Blocks(1e4)
    measure_shape(blocks, SHAPES[-1], "auto")
    assert blocks.as_dict() == {"start": {"error": "MemoryError: no room"}, "failed": ["start"]}
