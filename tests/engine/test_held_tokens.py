from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.engine.compiles import compiles
from tfjax.engine.held_tokens import HeldTokens
from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.window import Window

FIRST, SECOND = jnp.arange(10, 16, dtype=jnp.int32).reshape(2, 3), jnp.arange(20, 26, dtype=jnp.int32).reshape(2, 3)


def stream(name: str) -> Stream:
    return Stream(Request(name, (1,), 9), 9, Times(0.0))


A, B, C, D, E = (stream(name) for name in "abcde")
UNMADE = jnp.array([[30, -1, -7], [-1, -1, -1]], jnp.int32)
LYING: dict[Stream, Any] = {A: (FIRST, 1), B: (SECOND, 0), C: (FIRST, 0), E: (UNMADE, 0)}


@pytest.fixture(scope="module")
def tokens() -> HeldTokens:
    return HeldTokens(LYING.get, (4, 8), (2, 3))


def put(tokens: HeldTokens, rows: int, *windows: Window) -> list[int]:
    host, row = np.zeros(rows, np.int32), 0
    for window in windows:
        host[row] = window.pending or 0
        host[row + 1 : row + 1 + len(window.drafts)] = window.drafts
        row += window.rows
    before = compiles()
    made: list[int] = np.asarray(tokens.put(host, windows)).tolist()
    assert compiles() == before
    return made


def test_drafts_stand_behind_their_pending_tokens(tokens: HeldTokens) -> None:
    windows = Window(A, 5, 7, held=2), Window(D, 5, 8, (9,)), Window(C, 5, 6, held=1)
    assert put(tokens, 8, *windows) == [7, 13, 14, 8, 9, 6, 10, 0]


def test_drafts_of_several_holds(tokens: HeldTokens) -> None:
    assert put(tokens, 8, Window(A, 5, 7, held=3), Window(B, 5, 8, held=2)) == [7, 13, 14, 15, 8, 20, 21, 0]


def test_drafts_that_were_not_made_are_no_tokens_whatever_other_holds_there_are(tokens: HeldTokens) -> None:
    alone = put(tokens, 8, Window(E, 5, 7, held=3))
    beside = put(tokens, 8, Window(E, 5, 7, held=3), Window(B, 5, 8, held=2), Window(D, 5, 9))
    assert alone[:2] == beside[:2] == [7, 30]
    assert max(alone[2:4] + beside[2:4]) < 0
    assert beside[4:] == [8, 20, 21, 9]


def test_where_there_are_none_the_pending_token_stands_in(tokens: HeldTokens) -> None:
    assert put(tokens, 4, Window(D, 5, 7, held=2)) == [7, 7, 7, 0]
    assert put(tokens, 8, Window(D, 5, 7, held=2), Window(C, 5, 6, held=1)) == [7, 7, 7, 6, 10, 0, 0, 0]
