"""Fixtures: stages that are closed after their test, and one template process for all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.reports.stage import Book, Stage, scripted_engine
from tests.reports.tiny import ProbedTarget, tiny_backend, tiny_engine
from tfjax.engine.engine import Engine
from tfjax.server import templates
from tfjax.text.chat_template import ChatTemplate

MakeStage = Callable[..., Stage]
MakeTiny = Callable[..., Stage]


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


@pytest.fixture(scope="session")
def tiny() -> ProbedTarget:
    """A tiny model on the device, compiled once for all tests here."""
    return tiny_backend()


@pytest.fixture
def make_tiny(make_stage: MakeStage, tiny: ProbedTarget) -> MakeTiny:
    """Makes stages over the tiny model; `right` is the probability that a draft is, `block` the most drafts a round."""
    return lambda **options: make_stage(tiny_engine(tiny, **options))
