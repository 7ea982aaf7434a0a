"""Attention of flat rows over paged keys and values for one layer of a stack.

Keys are taken in pages and pages in chunks that begin at fixed positions, so a row's result depends on its own position
alone. Chunks are short where contexts are, so that few streams still fill a device, and longer further on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.paged_attention import MASKED, PAGE_ROWS, Tiles
from tfjax.kernels.rope_write import Pools
from tfjax.kernels.routes import Route

SHORT_KEYS, SHORT_CHUNKS, LONG_KEYS = 128, 8, 512
"""Keys of a chunk, how many chunks are that short, and keys of the later ones; part of the arithmetic."""

BLOCK_ROWS = 64
"""Query heads of all rows that a block of the device route takes."""

ITEM = 8
"""Numbers of an item of work: start row, rows, chunk, first page, pages, last position, lane, unused."""


class Window(NamedTuple):
    """What attention of every layer of one forward shares.

    Attributes:
        position: int32 [R], the last position that each row sees.
        tiles: rows grouped by lane.
        page_table: int32 [lanes, pages].
        seen: int32 [R * group + BLOCK_ROWS], `position` of every query head, padded.
        block: int32 [R], first row of the block that a row is computed in.
        items: int32 [items, ITEM], the (block, chunk) pairs to compute, one after another.
        used: int32 [], how many of them.
    """

    position: jax.Array
    tiles: Tiles
    page_table: jax.Array
    seen: jax.Array
    block: jax.Array
    items: jax.Array
    used: jax.Array


SEARCH = "scan_unrolled"
"""How rows and chunks are looked up. JAX's default is a loop, which is many small kernels on a GPU; this is one."""


def chunk_of(position: jax.Array | int) -> jax.Array:
    """The chunk that holds a position."""
    position = jnp.asarray(position, jnp.int32)
    edge = SHORT_KEYS * SHORT_CHUNKS
    return jnp.where(position < edge, position // SHORT_KEYS, SHORT_CHUNKS + (position - edge) // LONG_KEYS)


def chunk_start(chunk: jax.Array | int) -> jax.Array:
    """A chunk's first position."""
    chunk = jnp.asarray(chunk, jnp.int32)
    later = SHORT_KEYS * SHORT_CHUNKS + (chunk - SHORT_CHUNKS) * LONG_KEYS
    return jnp.where(chunk < SHORT_CHUNKS, chunk * SHORT_KEYS, later)


def chunks_of(positions: int) -> int:
    """Chunks that contexts of this many positions may need."""
    short = min(-(-positions // SHORT_KEYS), SHORT_CHUNKS)
    return short + max(0, -(-(positions - SHORT_KEYS * SHORT_CHUNKS) // LONG_KEYS))


def rows_of_block(group: int) -> int:
    """Rows that a block takes: the largest power of two whose query heads are at most BLOCK_ROWS.

    BLOCK_ROWS where no row's heads are so few, which the reference alone takes.
    """
    return 1 << (BLOCK_ROWS // group).bit_length() - 1 if group <= BLOCK_ROWS else BLOCK_ROWS


def spare_rows(group: int) -> int:
    """Rows of no meaning that queries should have behind their last; where they are missing, a copy is made."""
    return -(-BLOCK_ROWS // group)


def window(position: jax.Array, tiles: Tiles, page_table: jax.Array, *, tile_rows: int, group: int) -> Window:
    """Lay out the work of a forward's attention, once for all layers.

    Rows of a block whose rows all see one another, as a drafter's do, all have the block's last place as their
    position: the keys of the whole block are then in their pages before any of its rows attends.

    Args:
        position: int32 [R], the last place of the page table that a row sees, at least as far as the row itself; rows
            of no tile may hold anything.
        tile_rows: the most rows of a tile.
        group: query heads that read one key head.
    """
    rows, step = len(position), rows_of_block(group)
    row = jnp.arange(rows, dtype=jnp.int32)
    starts, tile = _tiles_of(tiles, row)
    following = jnp.append(starts[1:], rows + 1)[tile]
    end = jnp.minimum(jnp.minimum(following, starts[tile] + tile_rows), rows)
    block = starts[tile] + (row - starts[tile]) // step * step
    first = (row == block) & (row >= starts[tile]) & (row < end)
    block_rows = jnp.minimum(block + step, end) - block
    reach = row[:, None] + jnp.arange(step)
    visible = jnp.where(reach < (block + block_rows)[:, None], jnp.append(position, 0)[jnp.minimum(reach, rows)], 0)
    last = jnp.minimum(jnp.max(visible, 1), tiles.last[tile])  # Behind the last tile any position may stand.
    chunks = jnp.where(first, chunk_of(last) + 1, 0)
    ends = jnp.cumsum(chunks)
    number = jnp.arange(rows * chunks_of(page_table.shape[1] * PAGE_ROWS), dtype=jnp.int32)
    owner = jnp.minimum(jnp.searchsorted(ends, number, side="right", method=SEARCH), rows - 1)
    chunk = number - (ends - chunks)[owner]
    page = chunk_start(chunk) // PAGE_ROWS
    pages = jnp.minimum(chunk_start(chunk + 1) // PAGE_ROWS, last[owner] // PAGE_ROWS + 1) - page
    lane = tiles.lane[tile][owner]
    fields = (owner, block_rows[owner], chunk, page, pages, last[owner], lane, jnp.zeros_like(lane))
    items = jnp.stack([field.astype(jnp.int32) for field in fields], -1)
    each = jnp.pad(jnp.repeat(position, group), (0, BLOCK_ROWS))
    return Window(position, tiles, page_table, each, block.astype(jnp.int32), items, ends[-1].astype(jnp.int32))


def _tiles_of(tiles: Tiles, row: jax.Array) -> tuple[jax.Array, jax.Array]:
    """First row of each tile, beyond all rows for those that are not used; the tile of every row. Shape: row [R]."""
    starts = jnp.where(jnp.arange(len(tiles.start)) < tiles.used, tiles.start, len(row) + 1)
    return starts, jnp.maximum(jnp.searchsorted(starts, row, side="right", method=SEARCH) - 1, 0)


def window_attention(
    q: jax.Array, pools: Pools, shared: Window, first_page: jax.Array, *, route: Route = Route.REFERENCE
) -> jax.Array:
    """Softmax attention of every row to its lane's positions 0..position, scaled by H ** -0.5.

    Shapes: q [K, R or more, group, H], pools [P, K, PAGE_ROWS, H], first_page int32 [] (added to every page of the
    table) -> [R, K * group * H] in the dtype of q. Rows of no tile come back with no meaning.

    Raises:
        Unsupported: for heads that the device route cannot lay out.
    """
    return ROUTES[route](q, pools, shared, first_page)


def _reference(q: jax.Array, pools: Pools, shared: Window, first_page: jax.Array) -> jax.Array:
    kv_heads, _, _, size = q.shape
    rows = len(shared.position)
    _, tile = _tiles_of(shared.tiles, jnp.arange(rows))
    pages = shared.page_table[shared.tiles.lane[tile]] + first_page
    place = jnp.arange(pages.shape[1] * PAGE_ROWS)

    def one_row(row: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        query, page, position = row
        keys, values = (x[page].swapaxes(0, 1).reshape(kv_heads, -1, size).astype(jnp.float32) for x in pools)
        seen = place <= position
        score = jnp.einsum("kgh,kth->kgt", query.astype(jnp.float32), keys, precision="highest") * size**-0.5
        weight = jax.nn.softmax(jnp.where(seen, score, MASKED), -1)
        mixed = jnp.einsum("kgt,kth->kgh", weight, jnp.where(seen[:, None], values, 0), precision="highest")
        return mixed.reshape(-1)

    out: jax.Array = jax.lax.map(one_row, (q.swapaxes(0, 1)[:rows], pages, shared.position))
    return out.astype(q.dtype)


def _gpu(q: jax.Array, pools: Pools, shared: Window, first_page: jax.Array) -> jax.Array:
    from tfjax.kernels.gpu import window_attention as gpu

    return gpu.window_attention(q, pools, shared, first_page)


ROUTES: dict[Route, Callable[[jax.Array, Pools, Window, jax.Array], jax.Array]] = {
    Route.REFERENCE: _reference,
    Route.PALLAS_GPU: _gpu,
}
