"""The sum behind the experts by both routes, in both layouts."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels.test_grouped_matmul import choices
from tests.row_invariance import rows_of_normals
from tfjax.kernels.expert_sum import expert_sum
from tfjax.kernels.gpu.launch import Launch
from tfjax.kernels.grouped_matmul import Tiles, WindowTiles, expert_tiles
from tfjax.kernels.routes import Route

ROWS, COUNT, PICKED, EXPERTS, SIZE, LAYERS, LAYER, EPS = 8, 6, 2, 4, 64, 3, 1, 1e-5


def operator(route: str) -> Any:
    if route == "reference":
        return lambda *arguments, **rule: expert_sum(*arguments, **rule, route=Route.REFERENCE)
    from tfjax.kernels.gpu import expert_sum as gpu

    return lambda *arguments, **rule: gpu.expert_sum(*arguments, **rule, how=Launch(interpret=True))


def laid(whole: bool, choice: NDArray[np.int32]) -> tuple[Tiles, int]:
    """A layout, and how many places it has. Further columns of a choice have no meaning."""
    if whole:
        wide = np.pad(choice, ((0, 0), (0, 30)), constant_values=-1)
        return WindowTiles(jnp.asarray(wide), jnp.int32(COUNT), EXPERTS), EXPERTS * ROWS
    tiles = expert_tiles(jnp.asarray(choice), jnp.int32(COUNT), experts=EXPERTS, tile_rows=8)
    return tiles, len(tiles.source)


@pytest.mark.parametrize("route", ["reference", "interpreted"])
@pytest.mark.parametrize("whole", [False, True], ids=["grouped", "whole window"])
def test_what_a_rows_experts_made_is_weighted_and_added(route: str, whole: bool) -> None:
    choice = choices(ROWS, PICKED, EXPERTS)
    tiles, places = laid(whole, choice)
    own = np.asarray(tiles.place)[:COUNT, :PICKED]
    outputs = np.full((places, SIZE), np.nan, np.float32)  # what no row has is not read
    outputs[own.ravel()] = rows_of_normals(0, own.size, SIZE)
    factor, weight = rows_of_normals(1, ROWS, 32), np.full((LAYERS, SIZE), np.nan)
    weight[LAYER] = rows_of_normals(2, 1, SIZE)[0]
    x = jnp.asarray(rows_of_normals(3, ROWS, SIZE), jnp.bfloat16)
    summed, normed = operator(route)(
        jnp.asarray(outputs), tiles, jnp.asarray(factor), x, jnp.asarray(weight, jnp.bfloat16), jnp.int32(LAYER),
        jnp.int32(COUNT), picked=PICKED, eps=EPS,
    )  # fmt: skip
    assert summed.dtype == normed.dtype == jnp.bfloat16
    wanted = np.asarray(x, np.float64)[:COUNT] + (outputs[own] * factor[:COUNT, :PICKED, None]).sum(1)
    scaled = wanted / np.sqrt((wanted**2).mean(-1, keepdims=True) + EPS) * weight[LAYER]
    np.testing.assert_allclose(np.asarray(summed, np.float64)[:COUNT], wanted, rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(np.asarray(normed, np.float64)[:COUNT], scaled, rtol=1.5e-2, atol=1e-2)


def test_a_row_is_added_by_its_own_ranking() -> None:
    """In float32, where the order of two large numbers that cancel and a small one shows."""
    tiles = WindowTiles(jnp.asarray([[0, 1, 2], [2, 1, 0]], jnp.int32), jnp.int32(2), 3)
    outputs = jnp.repeat(jnp.asarray([[1e8], [-1e8], [1.0]], jnp.float32), 2, 0)
    ones, x = jnp.ones((2, 3), jnp.float32), jnp.zeros((2, 1), jnp.float32)
    summed, _ = expert_sum(
        outputs, tiles, ones, x, jnp.ones((1, 1), jnp.float32), jnp.int32(0), jnp.int32(2), picked=3, eps=EPS
    )
    assert np.asarray(summed).ravel().tolist() == [1.0, 0.0]
