"""What the contract of the draw holds against a route."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tfjax.kernels.contract.draw import TIES, KeyedDraws
from tfjax.kernels.contract.problem import Style
from tfjax.kernels.keyed_draw import NOT_FINITE, keyed_draw

VOCAB = 300
PROBLEM = KeyedDraws(VOCAB, Style.NORMAL, scattered=True, small=True)
ROWS = range(PROBLEM.rows)
KEYS = PROBLEM.data["keys"]
GREEDY, SAMPLED, UNSOUND = 0, 1, 4
"""A row of each kind."""


def errors(change: Callable[[NDArray[np.float32]], None]) -> dict[str, float]:
    """The largest error of each part, of what the reference draws with a change to it."""
    column = np.array(
        keyed_draw(PROBLEM.data["logits"], KEYS, jnp.int32(PROBLEM.rows), PROBLEM.data["ids"]), np.float32
    )
    change(column)
    return {part.name: float(np.abs(part.found - part.wanted).max()) for part in PROBLEM.judge(ROWS, [column])}


def test_what_the_reference_draws_is_right() -> None:
    assert errors(lambda column: None) == {"token": 0, "lacking": 0}


def test_the_rows_are_of_every_kind() -> None:
    logits = np.asarray(PROBLEM.data["logits"])
    assert KEYS.temperature[GREEDY] == 0
    assert not PROBLEM.unsound[GREEDY]
    assert KEYS.temperature[SAMPLED] > 0
    assert not PROBLEM.unsound[SAMPLED]
    assert not np.isfinite(logits[UNSOUND]).all()
    assert (logits[GREEDY] == logits[GREEDY].max()).sum() == TIES
    assert np.isneginf(logits[SAMPLED]).any()
    assert PROBLEM.masked[SAMPLED]
    assert logits[2].argmax() == VOCAB - 1


@pytest.mark.parametrize(
    ("row", "value", "part"),
    [
        (GREEDY, "the next of the largest", "token"),
        (SAMPLED, 0, "lacking"),
        (SAMPLED, NOT_FINITE, "lacking"),
        (SAMPLED, np.nan, "lacking"),
        (UNSOUND, 5, "token"),
        (GREEDY, NOT_FINITE, "token"),
    ],
)
def test_a_wrong_token_is_found(row: int, value: float | str, part: str) -> None:
    logits = np.asarray(PROBLEM.data["logits"][row])
    wrong = np.flatnonzero(logits == logits.max())[1] if isinstance(value, str) else value

    def change(column: NDArray[np.float32]) -> None:
        column[row] = wrong

    found = errors(change)
    assert found[part] > 1e-3


def test_not_finite_is_not_the_last_column(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = PROBLEM._scores(np.arange(PROBLEM.rows))
    scores[SAMPLED, VOCAB + NOT_FINITE] = scores[SAMPLED].max() + 1
    monkeypatch.setattr(PROBLEM, "_scores", lambda at: scores[at])

    def change(column: NDArray[np.float32]) -> None:
        column[SAMPLED] = NOT_FINITE

    assert errors(change)["lacking"] > 1
