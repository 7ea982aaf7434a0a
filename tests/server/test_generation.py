"""Defaults, room and bounds that need the model."""

from __future__ import annotations

import logging

import pytest

from tfjax.server.errors import ApiError
from tfjax.server.generation import Defaults, check_text_size, defaults_from, room_for


def test_defaults_without_a_generation_config_are_openais() -> None:
    assert defaults_from({}) == Defaults(1.0, 0, 1.0, 0.0, 1.0)


def test_defaults_of_the_model_and_a_warning_for_each_bad_one(caplog: pytest.LogCaptureFixture) -> None:
    given = {"temperature": 0.6, "top_k": -1, "top_p": None, "min_p": 2, "repetition_penalty": 1.1, "do_sample": True}
    with caplog.at_level(logging.WARNING):
        assert defaults_from(given) == Defaults(temperature=0.6, repetition_penalty=1.1)
    assert len(caplog.records) == 2
    assert "top_k" in caplog.text
    assert "min_p" in caplog.text


@pytest.mark.parametrize(("prompt", "asked", "room"), [(1, None, 9), (9, None, 1), (1, 9, 9), (9, 1, 1), (3, 2, 2)])
def test_room(prompt: int, asked: int | None, room: int) -> None:
    assert room_for(prompt, asked, 10, "prompt") == room


@pytest.mark.parametrize(("prompt", "asked"), [(10, None), (10, 1), (11, None), (9, 2), (1, 10)])
def test_no_room(prompt: int, asked: int | None) -> None:
    with pytest.raises(ApiError, match="maximum context length is 10 tokens") as error:
        room_for(prompt, asked, 10, "prompt")
    assert error.value.code == "context_length_exceeded"


def test_text_size_refuses_only_what_cannot_fit() -> None:
    check_text_size(640, 10, 64, "prompt")
    with pytest.raises(ApiError, match="at least 11 tokens"):
        check_text_size(641, 10, 64, "prompt")
