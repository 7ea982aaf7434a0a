"""`tfjax train answers` put together, on a tiny Llama and prompts that are given."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.train.tiny_run import write_target
from tfjax.terminal import CommandError
from tfjax.train import answering
from tfjax.train.answering import AnswerSettings, requests, write_answers
from tfjax.train.shards import UnusableReplies, read_recipe, read_replies, written

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


class Given:
    """Prompts of 1 to 23 tokens; the fourth one is too long in every attempt."""

    def __init__(self, *_: Any) -> None:
        pass

    def encode(self, number: int) -> tuple[Any, tuple[int, ...]] | None:
        if number == 3:
            return None
        prompt = SimpleNamespace(seed=number, kind="given", temperature=0.0 if number % 2 else 0.9)
        return prompt, tuple(3 + (number + place) % 20 for place in range(1 + 7 * number % 23))


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnswerSettings:
    monkeypatch.setattr(answering, "PromptEncoder", Given)
    monkeypatch.setattr(answering, "Prompts", lambda *_: None)
    monkeypatch.setattr(answering, "harvest", lambda _: SimpleNamespace(sha256="0" * 64, versions={}))
    target = write_target(tmp_path / "target")
    (target / "chat_template.jinja").write_text(TEMPLATE)
    return AnswerSettings(tmp_path / "answers", str(target), 300, 1, 32, 8, 2, 10, None)


def quiet(phase: str, share: float) -> None: ...


def test_every_prompt_is_answered_as_often_as_asked_with_what_it_began(settings: AnswerSettings) -> None:
    total = write_answers(settings, quiet)
    replies = {reply.index: reply for reply in read_replies(settings.output)}
    assert total == sum(len(reply.reply) for reply in replies.values()) >= settings.tokens
    assert not {6, 7} & replies.keys()
    for index, reply in replies.items():
        encoded = Given().encode(index // 2)
        assert encoded is not None
        assert reply.prompt == encoded[1]
        assert 1 <= len(reply.reply) <= settings.max_tokens
        assert reply.temperature == encoded[0].temperature if index % 2 == 0 else 0.7 <= reply.temperature <= 1
    assert read_recipe(settings.output)["sampling"] == "dense, 2 to a prompt"


def test_started_again_it_goes_on_with_other_prompts(settings: AnswerSettings) -> None:
    write_answers(settings, quiet)
    before, tokens = written(settings.output)
    total = write_answers(replace(settings, tokens=tokens + 100), quiet)
    after, counted = written(settings.output)
    assert total == counted >= tokens + 100
    assert before < after
    assert len(list(read_replies(settings.output))) == len(after)


def test_what_is_done_is_not_asked_again() -> None:
    encoder: Any = Given()
    asked = [request.index for request in itertools.islice(requests(encoder, 2, {0, 2, 3}), 4)]
    assert asked == [1, 4, 5, 8]


def test_past_its_limit_it_begins_nothing(settings: AnswerSettings) -> None:
    times = iter(range(0, 10_000, 50))
    total = write_answers(replace(settings, tokens=1_000_000, limit_s=10.0), quiet, lambda: float(next(times)))
    assert total == 0


def test_another_recipe_is_left_alone(settings: AnswerSettings) -> None:
    write_answers(settings, quiet)
    with pytest.raises(UnusableReplies, match="another recipe"):
        write_answers(replace(settings, draws=1), quiet)


def test_a_model_that_cannot_chat_is_refused(settings: AnswerSettings) -> None:
    assert settings.model is not None
    (Path(settings.model) / "chat_template.jinja").unlink()
    with pytest.raises(CommandError, match="no chat template"):
        write_answers(settings, quiet)
