from __future__ import annotations

import logging
from array import array
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drafters.pair import another, drafting, loaded
from tests.engine.drafters.spark_pair import BLOCK, drafting_spark
from tests.engine.drafters.spark_stage import Stage
from tfjax.config import ServeConfig
from tfjax.engine.drafters import joining
from tfjax.engine.drafters.choosing import Choice
from tfjax.engine.drafters.joining import add_drafter, describe_drafters, host_drafts
from tfjax.engine.drafters.loading import UnusableDrafter
from tfjax.engine.drafters.small_model import SmallModel
from tfjax.engine.target import TargetBackend
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request
from tfjax.lanes.table_drafts import Continuations, Table

MODEL = drafting(loaded())


def added(config: ServeConfig, target: TargetBackend, choice: Choice) -> tuple[Any, Choice]:
    return add_drafter(config, target, choice, ["key"], lambda phase, share: None)


def test_a_started_drafter_stands_beside_the_target(
    target: TargetBackend, perfect: SmallModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def start(model: Any, memory: Any, plan: Any, depth: int, progress: Any, *, timings: Path, key: Any) -> SmallModel:
        asked.extend([model, memory, plan, depth, timings.name, key])
        return perfect

    monkeypatch.setattr(joining, "start_drafter", start)
    backend, choice = added(ServeConfig(drafter_depth=5), target, Choice(MODEL))
    assert isinstance(backend, Drafted)
    assert (backend.target, backend.drafter, choice.model) == (target, perfect, MODEL)
    assert asked == [MODEL, target.memory, target.plan, 5, "timings", ["key"]]
    assert added(ServeConfig(), target, Choice(None, "why")) == (target, Choice(None, "why"))


def test_one_that_cannot_be_started(
    target: TargetBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        target.listener = lambda features, places, runs: None
        raise MemoryError("no room")

    monkeypatch.setattr(joining, "start_drafter", full)
    with pytest.raises(UnusableDrafter, match=r"--drafter: tiny could not be started: no room; .*--drafter copy"):
        added(ServeConfig(drafter="/models/tiny"), target, Choice(MODEL))
    with caplog.at_level(logging.WARNING):
        backend, choice = added(ServeConfig(), target, Choice(MODEL))
    assert backend is target
    assert target.listener is None, "nothing keeps the memory of one that failed half-way"
    assert choice == Choice(None, "tiny could not be started: no room")
    assert len(caplog.records) == 1


def test_what_capabilities_say(target: TargetBackend, perfect: SmallModel) -> None:
    drafter = another(perfect, MODEL)
    drafter.hold_ms = {1: {1: 1.234, 8: 2.0}}
    said = describe_drafters(Drafted(target, drafter, target.vocab), Choice(MODEL), ServeConfig())
    assert said["drafters"] == ["copy", "model"]
    assert said["drafter"] == {
        "name": "tiny",
        "kind": "model",
        "depth": 8,
        "context": 256,
        "draft_vocab": 64,
        "weight_bytes": MODEL.weight_bytes,
        "hold_ms": {"1": {"1": 1.23, "8": 2.0}},
    }
    assert describe_drafters(target, Choice(None, "why"), ServeConfig()) == {
        "drafter_policy": {"policy": "auto", "stands_aside": None},
        "drafters": ["copy"],
        "drafter": {"name": None, "reason": "why"},
    }
    assert describe_drafters(target, Choice(None, "why"), ServeConfig(drafter="none"))["drafters"] == []


def test_a_table_offers_beside_copies() -> None:
    settings = Settings(lanes=1, context=64, pages=1, page_rows=64, vocab_size=64, draft_tokens=8, first_width=3)
    assert host_drafts(Choice(None), settings, 32) is None
    table = Table([Continuations(array("Q", [5]), array("I", [7]), array("B", [200]))])
    make = host_drafts(Choice(None, table=table), settings, 4)
    assert make is not None
    proposer = make(Request("r", (1,), 8, least_match=3))
    proposer.extend([9, 4, 3, 5])
    assert proposer.propose(8).tokens == (7,)
    proposer = make(Request("r", (1,), 8, least_match=3))
    proposer.extend([1, 2, 3, 4, 6, 8, 1, 2, 3])
    assert proposer.propose(8).tokens == (4, 6, 8), "as wide as a window of 4 rows and the first width allow"
    assert describe_drafters_of(table) == ["copy", "table"]


def describe_drafters_of(table: Table) -> Any:
    backend: Any = None
    return describe_drafters(backend, Choice(None, "why", table), ServeConfig())["drafters"]


def test_a_drafter_of_blocks_is_started_with_its_own_depth(
    random_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def start(model: Any, target: Any, depth: int, progress: Any, *, timings: Path, key: Any, held: Any) -> Any:
        asked.append((target, depth, timings.name, key, held))
        return random_stage.drafter

    monkeypatch.setattr(joining, "start_dspark", start)
    model = drafting_spark(random_stage.spark)
    for config in (ServeConfig(), ServeConfig(drafter_depth=2, held_drafts="on"), ServeConfig(held_drafts="off")):
        backend, choice = added(config, random_stage.target, Choice(model))
        assert isinstance(backend, Drafted)
    target = random_stage.target
    assert asked == [
        (target, depth, "timings", ["key"], held) for depth, held in ((BLOCK, None), (2, True), (BLOCK, False))
    ]
    said = describe_drafters(backend, choice, ServeConfig(drafter_policy="always"))
    assert said["drafters"] == ["copy", "dspark"]
    drafter = said["drafter"]
    assert (drafter["block"], drafter["taps"], drafter["qk_norm"]) == (BLOCK, [0, 1], "before_rope")
    assert drafter["held_on_device"] is False
    assert drafter["kernels"] == {"route": "reference", "reason": random_stage.drafter.model.loaded.kernels.reason}
    assert said["drafter_policy"] == {"policy": "always", "stands_aside": None}


def test_capabilities_say_why_one_stands_aside(target: TargetBackend) -> None:
    said = describe_drafters(target, Choice(None, "on Metal: why", aside="on Metal: why"), ServeConfig())
    assert said["drafter"] == {"name": None, "reason": "on Metal: why"}
    assert said["drafter_policy"] == {"policy": "auto", "stands_aside": "on Metal: why"}
