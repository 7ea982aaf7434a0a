from __future__ import annotations

import copy
from typing import Any

import pytest

from benchmarks.blocks import Blocks
from tests.stubs import FakeClock


def test_a_block_that_does_not_fit_is_left_out_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    blocks = Blocks(100.0, clock=clock)
    clock.advance_ms(60_000.0)
    assert blocks.run("long", 41.0, lambda: 1) is None
    assert blocks.run("short", 40.0, lambda: 2) == 2
    assert blocks.left_out == {"long": "expected to take 41 s and 40 s are left"}
    assert blocks.as_dict() == {"short": 2, "left_out": blocks.left_out}
    assert "long left out" in capsys.readouterr().out


def test_one_that_fails_is_told_and_the_next_runs() -> None:
    def fail() -> None:
        raise MemoryError("no room")

    blocks = Blocks(1.0)
    assert blocks.run("first", 0.0, fail) is None
    assert blocks.run("second", 0.0, lambda: 7) == 7
    assert blocks.as_dict() == {"first": {"error": "MemoryError: no room"}, "second": 7, "failed": ["first"]}


def test_everything_is_written_after_each_block() -> None:
    written: list[Any] = []
    blocks = Blocks(10.0, lambda found: written.append(copy.deepcopy(dict(found))))
    blocks.run("a", 0.0, lambda: 1)
    blocks.run("b", 0.0, lambda: 2)
    blocks.run("c", 99.0, lambda: 3)
    assert [list(found) for found in written] == [["a"], ["a", "b"], ["a", "b", "left_out"]]


def test_what_is_kept_may_be_less_than_what_is_given() -> None:
    blocks = Blocks(1.0)
    assert blocks.run("start", 0.0, lambda: [1, 2, 3], len) == [1, 2, 3]
    assert blocks.found == {"start": 3}
