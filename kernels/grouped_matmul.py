"""Rows times the matrices of the experts that they chose, in tiles of rows that share an expert.

The layout of a forward is made once and serves every product of it. A row's bits depend neither on its tile nor on the
rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.routes import Route

LEAST_TILE, MOST_TILE = 8, 64
"""Rows of a tile: what the device's product takes without padding."""


class ExpertTiles(NamedTuple):
    """Where the rows of one forward stand once they are grouped by expert.

    Attributes:
        expert: int32 [tiles], the expert of each tile; negative where no row stands in it.
        place: int32 [R, k], the grouped row of a row and its choice; of rows that do not count, past the end.
        source: int32 [tiles * tile_rows], the row that stands at each place; any where none does.
    """

    expert: jax.Array
    place: jax.Array
    source: jax.Array

    @property
    def tile_rows(self) -> int:
        """Rows of a tile."""
        return len(self.source) // len(self.expert)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class WindowTiles:
    """All rows of a narrow window as one tile for every expert, of which those matter that a row chose.

    Weights are what a narrow window waits for, not the products of rows that did not choose an expert; and nothing has
    to be sorted, counted or gathered.

    Attributes:
        choice: int32 [R, k or more], negative in columns of no choice.
        count: int32 [], rows from there on have no meaning.
        experts: how many there are.
    """

    choice: jax.Array
    count: jax.Array
    experts: int = field(metadata={"static": True})

    @property
    def tile_rows(self) -> int:
        """Rows of a tile."""
        return len(self.choice)

    @property
    def place(self) -> jax.Array:
        """int32 [R, k or more], as that of `ExpertTiles`."""
        return self.choice * self.tile_rows + jnp.arange(self.tile_rows, dtype=jnp.int32)[:, None]


type Tiles = ExpertTiles | WindowTiles


def tile_rows_of(pairs: int, experts: int) -> int:
    """Rows of a tile where `pairs` rows and choices meet `experts`: the average, as a power of two within bounds."""
    average = -(-pairs // experts)
    return max(LEAST_TILE, min(MOST_TILE, 1 << (average - 1).bit_length()))


def expert_tiles(choice: jax.Array, count: jax.Array, *, experts: int, tile_rows: int) -> ExpertTiles:
    """Lay out rows by expert, each expert's from a tile's first row on, in the order of rows and choices.

    Shapes: choice int32 [R, k], count int32 [] (rows from there on have no meaning and take no place). There are as
    many tiles as the worst choice needs.
    """
    rows, picked = choice.shape
    pairs = rows * picked
    tiles = min(experts, pairs) + pairs // tile_rows
    live = jnp.arange(pairs, dtype=jnp.int32) < count * picked
    own = jnp.where(live, choice.reshape(-1), experts)
    # Comparisons and sums instead of a sort, which is many kernels on a device.
    alike = own[:, None] == own
    before = jnp.sum(jnp.tril(alike, -1), 1, dtype=jnp.int32)
    needed = (jnp.sum(own[:, None] == jnp.arange(experts), 0, dtype=jnp.int32) + tile_rows - 1) // tile_rows
    end = jnp.sum(jnp.tril(jnp.broadcast_to(needed, (experts, experts))), 1, dtype=jnp.int32)
    place = (end - needed)[jnp.minimum(own, experts - 1)] * tile_rows + before
    place = jnp.where(live, place, tiles * tile_rows)
    expert = jnp.sum(end <= jnp.arange(tiles, dtype=jnp.int32)[:, None], 1, dtype=jnp.int32)
    source = (
        jnp.zeros(tiles * tile_rows, jnp.int32).at[place].set(jnp.arange(pairs, dtype=jnp.int32) // picked, mode="drop")
    )
    return ExpertTiles(jnp.where(expert < experts, expert, -1), place.reshape(rows, picked), source)


def tiles_of(choice: jax.Array, count: jax.Array, *, experts: int, picked: int) -> Tiles:
    """The layout that a forward of so many rows takes.

    Shapes: choice int32 [R, picked or more], negative in further columns; count int32 [].
    """
    rows = len(choice)
    if rows <= MOST_TILE:
        return WindowTiles(choice, count, experts)
    tile_rows = tile_rows_of(rows * picked, experts)
    return expert_tiles(choice[:, :picked], count, experts=experts, tile_rows=tile_rows)


def gathered(x: jax.Array, tiles: Tiles) -> jax.Array:
    """The rows as the first product of a layout takes them. Shapes: [R, in] -> [R or tiles * tile_rows, in]."""
    return x if isinstance(tiles, WindowTiles) else x[tiles.source]


def grouped_matmul(
    x: jax.Array, weight: jax.Array, first: jax.Array, tiles: Tiles, *, route: Route = Route.REFERENCE
) -> jax.Array:
    """`x @ weight[first + expert].T` of every grouped row, in float32.

    Shapes: x [tiles * tile_rows, in], or [tile_rows, in] where all tiles of a window are of the same rows, weight
    [layers * experts, out, in], first int32 [] (the layer's first matrix) -> float32 [tiles * tile_rows, out].
    Places of no row have no meaning.

    Raises:
        Unsupported: where the device route has no tile for these sizes.
    """
    return ROUTES[route](x, weight, first, tiles)


def grouped_glu(
    x: jax.Array, weight: jax.Array, first: jax.Array, tiles: Tiles, *, route: Route = Route.REFERENCE
) -> jax.Array:
    """`silu(gate) * up` of every grouped row's expert; each is rounded to the dtype of x first.

    Shapes: as `grouped_matmul` with weight [layers * experts, 2 * inner, in], the gate's rows first
    -> [tiles * tile_rows, inner] in the dtype of x.

    Raises:
        Unsupported: as `grouped_matmul`.
    """
    return GLU_ROUTES[route](x, weight, first, tiles)


def _matmul_reference(x: jax.Array, weight: jax.Array, first: jax.Array, tiles: Tiles) -> jax.Array:
    expert = jnp.arange(tiles.experts) if isinstance(tiles, WindowTiles) else jnp.maximum(tiles.expert, 0)
    matrix = first + jnp.repeat(expert, tiles.tile_rows)
    x = jnp.tile(x, (len(matrix) // len(x), 1))

    def one_row(row: tuple[jax.Array, jax.Array]) -> jax.Array:
        value, number = row
        return jnp.einsum("i,oi->o", value.astype(jnp.float32), weight[number].astype(jnp.float32), precision="highest")

    out: jax.Array = jax.lax.map(one_row, (x, matrix))
    return out


def _glu_reference(x: jax.Array, weight: jax.Array, first: jax.Array, tiles: Tiles) -> jax.Array:
    both = _matmul_reference(x, weight, first, tiles).astype(x.dtype).astype(jnp.float32)
    gate, up = jnp.split(both, 2, -1)
    return (jax.nn.silu(gate) * up).astype(x.dtype)


def _matmul_gpu(x: jax.Array, weight: jax.Array, first: jax.Array, tiles: Tiles) -> jax.Array:
    from tfjax.kernels.gpu import grouped_matmul as gpu

    return gpu.grouped_matmul(x, weight, first, tiles)


def _glu_gpu(x: jax.Array, weight: jax.Array, first: jax.Array, tiles: Tiles) -> jax.Array:
    from tfjax.kernels.gpu import grouped_matmul as gpu

    return gpu.grouped_glu(x, weight, first, tiles)


type _Operator = Callable[[jax.Array, jax.Array, jax.Array, Tiles], jax.Array]

ROUTES: dict[Route, _Operator] = {Route.REFERENCE: _matmul_reference, Route.PALLAS_GPU: _matmul_gpu}

GLU_ROUTES: dict[Route, _Operator] = {Route.REFERENCE: _glu_reference, Route.PALLAS_GPU: _glu_gpu}
