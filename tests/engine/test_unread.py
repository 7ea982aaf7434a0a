"""Where windows end is found on the device as `accept` and `lay_out` find it on the host."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.engine.rows_buffer import PLACE, RowsBuffer, Run, lay_out
from tfjax.engine.unread import (
    FIRST,
    HELD,
    MOST_HELD,
    NO_TOKEN,
    Unread,
    asked,
    landed,
    nothing_unread,
    resolved,
    waiting,
)
from tfjax.kernels.draw import NOT_FINITE
from tfjax.lanes.accept import accept
from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.window import Window

LANES, WIDTHS = 6, (2, 8, 64)
TILE_ROWS = 4
LAND, RESOLVE = jax.jit(landed), jax.jit(resolved)


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


def before(source: random.Random) -> Unread:
    """What an earlier forward and hold left in every lane."""
    numbers = [[source.randrange(90, 99) for _ in range(LANES + 1)] for _ in range(2)]
    drafts = [[source.randrange(3, 50) for _ in range(MOST_HELD)] for _ in range(LANES + 1)]
    return Unread(*(jnp.array(own, jnp.int32) for own in (*numbers, drafts)))


def left(found: Case, width: int, earlier: Unread) -> Unread:
    tokens = padded([(window.pending or 0, *window.drafts) for window in found.windows], width)
    lanes = laid_out(found.windows, [window.position for window in found.windows], width)["lane"]
    made: Unread = LAND(earlier, tokens, jnp.asarray(padded(found.draws, width)), lanes)
    return made


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
def test_windows_end_where_the_host_has_them_end(rows: tuple[int, ...], seed: int) -> None:
    source = random.Random(seed)
    found, earlier = case(source, rows), before(source)
    made = left(found, width_of(rows), earlier)
    kept, token = np.array(earlier.kept), np.array(earlier.token)
    for window, own in zip(found.windows, found.kept, strict=True):
        kept[window.stream.lane], token[window.stream.lane] = len(own) - 1, own[-1]
    assert made.kept[:LANES].tolist() == kept[:LANES].tolist(), "lanes without a window keep what they had"
    assert made.token[:LANES].tolist() == token[:LANES].tolist()
    assert np.array_equal(made.drafts, earlier.drafts)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("seed", range(10))
def test_a_forward_behind_them_is_as_though_the_host_knew(rows: tuple[int, ...], seed: int) -> None:
    """The windows behind are of other lengths, in another order. Some lanes have another stream by now."""
    source = random.Random(seed)
    found = case(source, rows)
    made = left(found, width_of(rows), before(source))
    order = source.sample(range(len(rows)), len(rows))
    behind, ends, starts, told, wanted = [], [], [], [], []
    for place in order:
        first = found.windows[place]
        held = source.randrange(min(64 // len(rows), MOST_HELD))
        drafts = made.drafts[first.stream.lane, :held].tolist()
        if source.random() < 0.3:
            window = Window(stream_on(first.stream.lane), source.randrange(300), source.randrange(50), held=held)
            ends.append(window.position)
            starts.append(window.position)
            wanted.append((window.pending or 0, *drafts))
        else:
            window = Window(first.stream, 0, None, held=held)
            ends.append(first.position + len(found.kept[place]))
            starts.append(first.position + 1)
            wanted.append((found.kept[place][-1], *drafts))
        behind.append(window)
        told.append((FIRST if window.pending is None else window.pending, *range(HELD, HELD - held, -1)))
    width = width_of([window.rows for window in behind])
    known, given = laid_out(behind, ends, width), laid_out(behind, starts, width)
    unknown = [window.stream.lane for window in behind if window.pending is None]
    given["behind"][:] = np.isin(given["lane"], unknown)
    tiles = given["tile_count"][0]
    given["tile_behind"][:tiles] = np.isin(given["tile_lane"][:tiles], unknown)
    token, matrix = RESOLVE(made, jnp.asarray(padded(told, width)), given.matrix)
    used = sum(window.rows for window in behind)
    assert token.tolist()[:used] == [token for window in wanted for token in window]
    told_by = [PLACE["behind"], PLACE["tile_behind"]]
    assert np.array_equal(np.delete(matrix, told_by, 0), np.delete(known.matrix, told_by, 0))


@pytest.mark.parametrize("seed", range(10))
def test_so_is_what_a_hold_is_asked(seed: int) -> None:
    source = random.Random(seed)
    found = case(source, (3, 1, 4))
    made = left(found, 8, before(source))
    asks, pending = RowsBuffer(4), np.array([0, 0, 0, 33], np.int32)
    asks["lane"][:] = [*[window.stream.lane for window in found.windows], found.windows[0].stream.lane]
    asks["position"][:] = [*[window.position + 1 for window in found.windows], 77]
    asks["behind"][:3] = 1
    matrix, token = asked(made, jnp.asarray(asks.matrix), jnp.asarray(pending))
    ends = [window.position + len(kept) for window, kept in zip(found.windows, found.kept, strict=True)]
    assert matrix[PLACE["position"]].tolist() == [*ends, 77], (
        "the last one is known: another stream has its lane by now"
    )
    assert token.tolist() == [*[kept[-1] for kept in found.kept], 33]
    assert np.array_equal(np.delete(matrix, PLACE["position"], 0), np.delete(asks.matrix, PLACE["position"], 0))


def test_drafts_wait_by_lane_until_the_next_hold() -> None:
    first = nothing_unread(LANES + 1)
    second = first._replace(drafts=waiting(first, jnp.array([4, 1]), jnp.array([[10, 11, 12], [20, NOT_FINITE, 22]])))
    third = second._replace(drafts=waiting(second, jnp.array([4]), jnp.array([[30, 31]])))
    buffer = laid_out([Window(stream_on(1), 5, 9, held=3), Window(stream_on(4), 5, 8, held=2)], [5, 5], 8)
    token = padded([(9, HELD, HELD - 1, HELD - 2), (8, HELD, HELD - 1)], 8)
    assert RESOLVE(second, token, buffer.matrix)[0].tolist() == [9, 20, NO_TOKEN, 22, 8, 10, 11, 7]
    assert RESOLVE(third, token, buffer.matrix)[0].tolist() == [9, 20, NO_TOKEN, 22, 8, 30, 31, 7]


def test_a_draw_that_is_none_becomes_a_token() -> None:
    """A stream whose numbers are not finite ends when the host reads them; its rows must do no harm until then."""
    made = left(Case([Window(stream_on(2), 9, 4, (5,))], [[5, NOT_FINITE]]), 2, nothing_unread(LANES + 1))
    assert made.token[2] == NOT_FINITE
    buffer = laid_out([Window(stream_on(2), 0, None)], [10], 2)
    buffer["behind"][0] = 1
    assert int(RESOLVE(made, np.full(2, FIRST, np.int32), buffer.matrix)[0][0]) == 0
    assert asked(made, jnp.asarray(buffer.matrix), jnp.array([7, 7]))[1].tolist() == [0, 7]
