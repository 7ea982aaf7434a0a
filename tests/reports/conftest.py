"""Fixtures: stages that are closed after their test, and one template process for all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.reports.stage import Book, Stage, scripted_engine
from tfjax.engine.engine import Engine
from tfjax.server import templates
from tfjax.text.chat_template import ChatTemplate

MakeStage = Callable[..., Stage]


@pytest.fixture(scope="session")
def shared_templates() -> Callable[[str, str, str], ChatTemplate]:
    return functools.cache(ChatTemplate)


@pytest.fixture(autouse=True)
def one_template_process(monkeypatch: pytest.MonkeyPatch, shared_templates: Any) -> None:
    """Each template has a process of its own; the tests share one a template."""
    monkeypatch.setattr(templates, "ChatTemplate", shared_templates)


@pytest.fixture
def make_stage() -> Iterator[MakeStage]:
    """Makes stages over a given engine, or over a scripted one: book, drafter's manner, and its options."""
    made: list[Stage] = []

    def make(book: Book | Engine, mode: str | None = None, *, config: Any = None, **options: Any) -> Stage:
        engine = book if isinstance(book, Engine) else scripted_engine(book, mode, **options)
        made.append(Stage(engine, **(config or {})))
        return made[-1]

    yield make
    for stage in made:
        stage.close()
