"""Where windows end is found on the device as `accept` and `lay_out` find it on the host."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.engine.compiles import compiles
from tfjax.engine.held_tokens import NO_PLACE
from tfjax.engine.landing import Landed, Landing
from tfjax.engine.rows_buffer import FIELDS, RowsBuffer, Run, lay_out
from tfjax.kernels.draw import NOT_FINITE
from tfjax.lanes.accept import accept
from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.window import Window

LANES, WIDTHS, ASKED = 6, (2, 8, 64), 3
TILE_ROWS = 4


@pytest.fixture(scope="module")
def landing() -> Landing:
    return Landing(WIDTHS, LANES, [(len(FIELDS) + ASKED, 4)])


class Case(NamedTuple):
    """Windows in flight, and the draw after each of their rows."""

    windows: list[Window]
    draws: list[list[int]]

    @property
    def kept(self) -> list[tuple[int, ...]]:
        return [tuple(accept(window, draws)) for window, draws in zip(self.windows, self.draws, strict=True)]


def stream_on(lane: int) -> Stream:
    return Stream(Request("r", (1,), 500), 500, Times(0.0), lane=lane)


def case(source: random.Random, rows: Sequence[int]) -> Case:
    """Windows of so many rows on any lanes, of whose drafts the first land, some or all."""
    windows, draws = [], []
    for lane, count in zip(source.sample(range(LANES), len(rows)), rows, strict=True):
        own = [source.randrange(3, 50) for _ in range(count)]
        drafts = tuple(token if source.random() < 0.7 else token + 60 for token in own[:-1])
        windows.append(Window(stream_on(lane), source.randrange(300), source.randrange(50), drafts))
        draws.append(own)
    return Case(windows, draws)


def laid_out(windows: Sequence[Window], positions: Sequence[int], width: int) -> RowsBuffer:
    buffer = RowsBuffer(width)
    runs = [Run(window.stream.lane, at, window.rows) for window, at in zip(windows, positions, strict=True)]
    lay_out(buffer, runs, tile_rows=TILE_ROWS, scratch_lane=LANES)
    return buffer


def padded(rows: Sequence[Sequence[int]], width: int) -> np.ndarray:
    flat = [token for row in rows for token in row]
    return np.array(flat + [7] * (width - len(flat)), np.int32)


def landed(landing: Landing, found: Case, width: int) -> Landed:
    tokens = padded([(window.pending or 0, *window.drafts) for window in found.windows], width)
    lanes = laid_out(found.windows, [window.position for window in found.windows], width)["lane"]
    return landing.land(tokens, jnp.asarray(padded(found.draws, width)), lanes)


ROWS = [
    (1,),
    (2,),
    (1, 1),
    (5,),
    (8,),
    (3, 1, 4),
    (1, 2, 1, 1, 2, 1),
    (17,),
    (33, 1, 30),
    (64,),
    (63, 1),
    (7, 16, 5, 2),
]


def width_of(rows: Sequence[int]) -> int:
    return next(width for width in WIDTHS if width >= sum(rows))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("seed", range(20))
def test_windows_end_where_the_host_has_them_end(landing: Landing, rows: tuple[int, ...], seed: int) -> None:
    found = case(random.Random(seed), rows)
    made = landed(landing, found, width_of(rows))
    drafts, token = np.zeros(LANES + 1, int), np.zeros(LANES + 1, int)
    for window, kept in zip(found.windows, found.kept, strict=True):
        drafts[window.stream.lane], token[window.stream.lane] = len(kept) - 1, kept[-1]
    assert made.drafts.tolist() == drafts.tolist()
    assert made.token.tolist() == token.tolist()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("seed", range(10))
def test_a_forward_behind_them_is_as_though_the_host_knew(landing: Landing, rows: tuple[int, ...], seed: int) -> None:
    """The windows behind are of other lengths, in another order. Some lanes have another stream by now."""
    source = random.Random(seed)
    found = case(source, rows)
    made = landed(landing, found, width_of(rows))
    order = source.sample(range(len(rows)), len(rows))
    behind, ends, starts, wanted = [], [], [], []
    for place in order:
        before, held = found.windows[place], source.randrange(64 // len(rows))
        if source.random() < 0.3:
            behind.append(Window(stream_on(before.stream.lane), source.randrange(300), source.randrange(50), held=held))
            ends.append(behind[-1].position)
            starts.append(ends[-1])
            wanted.append((behind[-1].pending or 0, *[-1] * held))
        else:
            behind.append(Window(before.stream, 0, None, held=held))
            ends.append(before.position + len(found.kept[place]))
            starts.append(before.position + 1)
            wanted.append((found.kept[place][-1], *[-1] * held))
    width = width_of([window.rows for window in behind])
    known, given = laid_out(behind, ends, width), laid_out(behind, starts, width)
    tokens = padded(
        [(NO_PLACE if window.pending is None else window.pending, *[-1] * window.held) for window in behind], width
    )
    before = compiles()
    moved = landing.move(made, jnp.asarray(tokens), given.matrix)
    assert compiles() == before
    assert np.array_equal(moved.matrix, known.matrix)
    used = sum(window.rows for window in behind)
    assert moved.token.tolist()[:used] == [token for window in wanted for token in window]
    assert np.array_equal(moved.places, known.places)


@pytest.mark.parametrize("seed", range(10))
def test_so_is_what_a_hold_is_told(landing: Landing, seed: int) -> None:
    source = random.Random(seed)
    found = case(source, (3, 1, 4))
    made = landed(landing, found, 8)
    told = np.array([[source.randrange(LANES) for _ in range(4)] for _ in range(len(FIELDS) + ASKED)], np.int32)
    fields = list(FIELDS)
    for column, window in enumerate(found.windows):
        told[fields.index("lane"), column] = window.stream.lane
        told[fields.index("position"), column] = window.position + 1
    told[len(FIELDS), :3] = -1
    told[fields.index("lane"), 3] = told[fields.index("lane"), 0]
    wanted = told.copy()
    for column, (window, kept) in enumerate(zip(found.windows, found.kept, strict=True)):
        wanted[fields.index("position"), column] = window.position + len(kept)
        wanted[len(FIELDS), column] = kept[-1]
    moved = np.asarray(landing.move_asks(made, told))
    assert np.array_equal(moved, wanted), "the last one knows its token: its lane has another stream by now"


def test_a_draw_that_is_none_becomes_a_token(landing: Landing) -> None:
    """A stream whose numbers are not finite ends when the host reads them; its rows must do no harm until then."""
    made = landed(landing, Case([Window(stream_on(2), 9, 4, (5,))], [[5, NOT_FINITE]]), 2)
    assert made.token[2] == NOT_FINITE
    moved = landing.move(
        made, np.full(2, NO_PLACE, np.int32), laid_out([Window(stream_on(2), 0, None)], [10], 2).matrix
    )
    assert int(moved.token[0]) >= 0
    told = np.full((len(FIELDS) + ASKED, 4), 2, np.int32)
    told[len(FIELDS)] = -1
    assert landing.move_asks(made, told)[len(FIELDS)].tolist() == [0] * 4
