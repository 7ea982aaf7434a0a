from __future__ import annotations

from typing import Any

import pytest

from benchmarks import device_engine
from benchmarks.blocks import Blocks
from benchmarks.device_engine import Measured, measure_engine
from benchmarks.device_serve import PROMPTS
from tests.benchmarks.scripted_exact import ScriptedEngine, Wrong
from tfjax.engine.api import Generation


class Engine(ScriptedEngine):
    """With what the suite asks of a started one."""

    closed = 0

    def capabilities(self) -> dict[str, Any]:
        kernels = {"route": self.route, "reason": "a test"}
        return {"kernels": kernels, "arithmetic": "none", "window_ms": {}, "drafter": None}

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Engines in the order of their starts; `auto` takes kernels."""
    engines: list[Any] = []

    def load(config: Any, progress: Any) -> Any:
        engine: Any = Engine(WRONG[0])
        engine.route = "kernels" if config.kernels == "auto" else "reference"
        engines.append(engine)
        return engine

    monkeypatch.setattr(device_engine, "load_engine", load)
    monkeypatch.setattr(device_engine, "_models", lambda model: {"some": "path", "other": OSError("not here")})
    WRONG[0] = None
    return engines


WRONG: list[Wrong | None] = [None]


def test_both_kinds_of_operators_are_measured_and_a_model_that_is_not_here_is_told(started: list[Any]) -> None:
    blocks = Blocks(1e4)
    measure_engine(blocks)
    for kernels in ("auto", "reference"):
        at = f"some, --kernels {kernels}"
        assert blocks.found[at]["kernels"]["reason"] == "a test"
        assert blocks.found[f"{at}, 4 streams"]["plain_tokens_per_s"] > 0
        assert blocks.found[f"{at}, exactness"]["compared_tokens"] == 5 * 2 * len(PROMPTS) * device_engine.TOKENS
    assert [engine.closed for engine in started] == [1, 1]
    assert blocks.left_out == {"other": "OSError: not here"}
    assert not blocks.failed


def test_a_reply_that_differs_fails_its_block(started: list[Any]) -> None:
    def planted(generation: Generation, tokens: tuple[int, ...]) -> tuple[int, ...]:
        return (tokens[0] ^ 1, *tokens[1:]) if generation.cache_salt == "resumed" else tokens

    WRONG[0] = planted
    blocks = Blocks(1e4)
    measure_engine(blocks, kernels="auto")
    assert blocks.failed == ["some, --kernels auto, exactness"]
    assert "'resumed': 12" in blocks.found[blocks.failed[0]]["error"]


def test_the_engine_is_ended_with_the_block(started: list[Any]) -> None:
    with Measured("some", "path", "auto") as measured:
        assert measured.engine is started[0]
    assert started[0].closed == 1
