from __future__ import annotations

from typing import Any

import pytest

from benchmarks.device_serve import Cell
from tests.benchmarks.scripted_exact import ScriptedEngine, Wrong
from tfjax.engine.api import Generation


def cell(wrong: Wrong | None = None) -> Cell:
    engine: Any = ScriptedEngine(wrong)
    return Cell(engine, 3, 0.8, 10)


def test_a_cell_counts_tokens_of_drafted_rounds_and_drafts_kept() -> None:
    found = cell().measured(2)
    assert (found["counting_tokens"], found["differing_replies"]) == (2 * 3 * 10, 0)
    assert found["kept_per_round"] == 1.0
    assert len(found["ratios"]) == 2


def test_the_mean_reply_and_the_one_that_drafting_slows_most_are_told() -> None:
    """Plain replies take 6 ms each, drafted ones 2, 4 and 8."""
    engine: Any = ScriptedEngine(decode_ms=lambda asked: 2.0 * 2 ** int(asked.id) if asked.draft else 6.0)
    found = Cell(engine, 3, 0.0, 10).measured(2)
    assert found["mean_reply_ratio"] == round(6 * 3 / (2 + 4 + 8), 3)
    assert found["slowest_reply_ratio"] == 0.75


def test_a_reply_that_differs_is_an_error() -> None:
    def planted(generation: Generation, tokens: tuple[int, ...]) -> tuple[int, ...]:
        return (*tokens[:-1], tokens[-1] ^ 1) if generation.draft and generation.id == "1" else tokens

    with pytest.raises(RuntimeError, match="2 drafted replies are not the plain ones"):
        cell(planted).measured(2)
