"""A model is opened by all settings that concern it, and the loop gets the sizes that its memory has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfjax.config import ServeConfig
from tfjax.engine import opening
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.opening import loop_settings, open_model
from tfjax.kernels.paged_attention import PAGE_ROWS


def test_settings_reach_what_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def resolve(model: str | None, *, offline: bool, progress: Any) -> Path:
        asked.update(model=model, offline=offline)
        return Path("found")

    def load(checkpoint: Any, dtype: str, progress: Any, context: int | None, *, weights: str, kernels: str) -> Any:
        asked.update(checkpoint=checkpoint, dtype=dtype, context=context, weights=weights, kernels=kernels)
        return "model"

    monkeypatch.setattr(opening, "resolve_model", resolve)
    monkeypatch.setattr(opening, "open_checkpoint", lambda path: f"checkpoint of {path}")
    monkeypatch.setattr(opening, "load_tokenizer", lambda checkpoint: f"tokenizer of {checkpoint}")
    monkeypatch.setattr(opening, "load_model", load)
    phases: list[str] = []
    config = ServeConfig(
        model="named", offline=True, dtype="float32", context=77, weights="packed", kernels="reference"
    )
    opened: Any = open_model(config, lambda phase, share: phases.append(phase))
    assert (opened.path, opened.model) == (Path("found"), "model")
    assert opened.tokenizer == f"tokenizer of {opened.checkpoint}"
    wanted = {"model": "named", "offline": True, "dtype": "float32", "context": 77, "weights": "packed"}
    assert asked == wanted | {"checkpoint": "checkpoint of found", "kernels": "reference"}
    assert phases == ["finding the model", "reading the tokenizer"]


def test_the_loop_gets_the_sizes_of_the_memory() -> None:
    class Target:
        memory = MemoryPlan(96, False, 3, 11, 0, 0, 0, prompt_pages=5)
        vocab = 321

    target: Any = Target()
    settings = loop_settings(target, draft_tokens=4)
    assert (settings.lanes, settings.context, settings.pages, settings.prompt_pages) == (3, 96, 11, 5)
    assert (settings.page_rows, settings.vocab_size, settings.draft_tokens) == (PAGE_ROWS, 321, 4)
