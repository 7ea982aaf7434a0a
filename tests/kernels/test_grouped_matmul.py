"""The layout by expert, and grouped products against the operator that takes experts one after another."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.row_invariance import rows_of_normals
from tfjax.kernels.gpu.launch import Launch
from tfjax.kernels.grouped_matmul import (
    LEAST_TILE,
    MOST_TILE,
    ExpertTiles,
    Tiles,
    WindowTiles,
    expert_tiles,
    gathered,
    grouped_glu,
    grouped_matmul,
    tile_rows_of,
    tiles_of,
)
from tfjax.kernels.routes import Route

SIZE, INNER = 128, 64


def choices(rows: int, picked: int, experts: int) -> NDArray[np.int32]:
    random = np.random.default_rng(rows)
    return np.stack([random.permutation(experts)[:picked] for _ in range(rows)]).astype(np.int32)


def layout(choice: NDArray[np.int32], count: int, experts: int, tile_rows: int) -> ExpertTiles:
    return expert_tiles(jnp.asarray(choice), jnp.int32(count), experts=experts, tile_rows=tile_rows)


@pytest.mark.parametrize("tile_rows", [8, 16])
@pytest.mark.parametrize(
    ("rows", "count", "picked", "experts"),
    [(1, 1, 4, 64), (16, 16, 4, 64), (40, 33, 2, 4), (64, 64, 4, 4), (9, 0, 2, 4)],
)
def test_every_row_that_counts_has_places_in_tiles_of_its_experts(
    rows: int, count: int, picked: int, experts: int, tile_rows: int
) -> None:
    choice = choices(rows, picked, experts)
    tiles = layout(choice, count, experts, tile_rows)
    place = np.asarray(tiles.place)
    own = place[:count].ravel()
    assert tiles.tile_rows == tile_rows
    assert len(set(own.tolist())) == len(own)
    assert (np.asarray(tiles.expert)[own // tile_rows] == choice[:count].ravel()).all()
    assert (np.asarray(tiles.source)[own] == np.repeat(np.arange(count), picked)).all()
    assert (place[count:] >= len(tiles.source)).all()
    needed = -(-np.bincount(choice[:count].ravel(), minlength=experts) // tile_rows)
    assert (np.asarray(tiles.expert) >= 0).tolist() == [tile < needed.sum() for tile in range(len(tiles.expert))]
    assert set((own // tile_rows).tolist()) == set(range(needed.sum()))


@pytest.mark.parametrize("rows", [8, 9, 16, 63])
def test_the_worst_choice_fits(rows: int) -> None:
    """Each expert has one row more than whole tiles, as far as there are rows."""
    experts = 4
    choice = (np.arange(rows) % experts).astype(np.int32)[:, None]
    tiles = layout(choice, rows, experts, 8)
    assert (np.asarray(tiles.place) < len(tiles.source)).all()


def test_rows_of_one_expert_stand_in_their_order() -> None:
    tiles = layout(np.array([[1, 0], [1, 2], [0, 1]], np.int32), 3, 3, 8)
    assert np.asarray(tiles.place).tolist() == [[8, 0], [9, 16], [1, 10]]


@pytest.mark.parametrize(
    ("pairs", "experts", "rows"), [(4, 64, 8), (256, 64, 8), (1024, 64, 16), (16, 1, 16), (10_000, 8, 64)]
)
def test_tile_rows_follow_the_average(pairs: int, experts: int, rows: int) -> None:
    assert tile_rows_of(pairs, experts) == rows
    assert LEAST_TILE <= rows <= MOST_TILE


def test_a_window_has_a_tile_for_every_expert() -> None:
    choice = choices(16, 2, 8)
    tiles = WindowTiles(jnp.asarray(choice), jnp.int32(13), 8)
    place = np.asarray(tiles.place)
    assert tiles.tile_rows == 16
    assert (place // 16 == choice).all()
    assert (place % 16 == np.arange(16)[:, None]).all()


@pytest.mark.parametrize(("rows", "whole"), [(8, True), (MOST_TILE, True), (MOST_TILE + 1, False)])
def test_narrow_windows_are_not_sorted(rows: int, whole: bool) -> None:
    choice = np.pad(choices(rows, 2, 8), ((0, 0), (0, 3)), constant_values=-1)
    tiles = tiles_of(jnp.asarray(choice), jnp.int32(rows), experts=8, picked=2)
    assert isinstance(tiles, WindowTiles) == whole
    x = jnp.arange(rows)[:, None]
    taken = gathered(x, tiles)
    if isinstance(tiles, WindowTiles):
        assert taken is x
    else:
        assert len(taken) == len(tiles.expert) * tiles.tile_rows
        assert (np.asarray(taken)[np.asarray(tiles.place)] == np.arange(rows)[:, None, None]).all()


def material(rows: int, experts: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    x = jnp.asarray(rows_of_normals(0, rows, SIZE)).astype(jnp.bfloat16)
    gate_up, down = (
        rows_of_normals(seed, 2 * experts, *shape) for seed, shape in ((1, (128, SIZE)), (2, (SIZE, INNER)))
    )
    return x, jnp.asarray(gate_up * 0.1).astype(jnp.bfloat16), jnp.asarray(down).astype(jnp.bfloat16)


def wide(x: Any) -> NDArray[np.float64]:
    return np.asarray(x).astype(np.float64)


def operator(name: str, route: str) -> Any:
    if route == "reference":
        public = {"grouped_matmul": grouped_matmul, "grouped_glu": grouped_glu}[name]
        return lambda *arguments: public(*arguments, route=Route.REFERENCE)
    from tfjax.kernels.gpu import grouped_matmul as gpu

    return lambda *arguments: getattr(gpu, name)(*arguments, how=Launch(interpret=True))


@pytest.mark.parametrize(
    ("whole", "columns"), [(False, 0), (True, 0), (True, 30)], ids=["grouped", "whole window", "wide choice"]
)
@pytest.mark.parametrize("route", ["reference", "interpreted"])
def test_products_by_the_second_layers_experts(route: str, whole: bool, columns: int) -> None:
    experts, rows, count = 4, 8, 7
    x, gate_up, down = material(rows, experts)
    choice = choices(rows, 2, experts)
    choice[choice == 2] = 3  # nobody goes through this one
    choice[count:] = 2
    if whole:
        wide_choice = np.pad(choice, ((0, 0), (0, columns)), constant_values=-1)
        tiles: Tiles = WindowTiles(jnp.asarray(wide_choice), jnp.int32(count), experts)
    else:
        tiles = layout(choice, count, experts, 8)
    first = jnp.int32(experts)
    inner = operator("grouped_glu", route)(gathered(x, tiles), gate_up, first, tiles)
    out = operator("grouped_matmul", route)(inner, down, first, tiles)
    assert (inner.dtype, out.dtype) == (jnp.bfloat16, jnp.float32)
    for row, rank in np.ndindex(count, 2):
        matrix, place = experts + choice[row, rank], tiles.place[row, rank]
        gate, up = np.split(wide(gate_up[matrix]) @ wide(x[row]), 2)
        np.testing.assert_allclose(wide(inner[place]), gate / (1 + np.exp(-gate)) * up, rtol=0.03, atol=0.02)
        np.testing.assert_allclose(wide(out[place]), wide(down[matrix]) @ wide(inner[place]), rtol=1e-4, atol=1e-4)
