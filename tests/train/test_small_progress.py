"""Progress: lines elsewhere than on a terminal, not too many, and one at the end."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from tfjax.train.small_progress import LINE_EVERY_S, Lines, training_progress


def point(step: int) -> dict[str, float]:
    return {"step": step, "loss": 2.5, "agreement": 0.25}


def test_a_line_now_and_then_and_one_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    lines = Lines(100, Console(stderr=True), lambda: now_s)
    for step in range(10, 110, 10):
        lines(point(step))
        now_s += LINE_EVERY_S / 4
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "tfjax: step 10 of 100",
        "tfjax: step 50 of 100",
        "tfjax: step 90 of 100",
        "tfjax: step 100 of 100",
    ]


def test_a_line_shows_loss_and_agreement(capsys: pytest.CaptureFixture[str]) -> None:
    with training_progress(10) as report:
        report(point(5))
    assert capsys.readouterr().err == "tfjax: step 5 of 10, loss 2.500, agreement 0.250\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with training_progress(10) as report:
        report(point(10))
    assert "loss 2.500" in screen.getvalue()
    assert "10/10" in screen.getvalue()
