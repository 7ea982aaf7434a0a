"""Window attention lowers for CUDA at every size of head and group, up to the longest context."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tfjax.kernels.gpu.window_attention import window_attention
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.kernels.rope_write import Pools
from tfjax.kernels.routes import Unsupported
from tfjax.kernels.window_attention import chunks_of, window

LONGEST = 131_072 // PAGE_ROWS
"""Pages of the longest context."""


def lowered(
    group: int, size: int, *, rows: int = 16, pages: int = LONGEST, pool: int = 9, dtype: Any = jnp.bfloat16
) -> str:
    kv_heads = 2

    def attend(q: jax.Array, pools: Pools, position: jax.Array, tiles: Tiles, table: jax.Array) -> jax.Array:
        shared = window(position, tiles, table, tile_rows=8, group=group)
        return window_attention(q, pools, shared, jnp.int32(0))

    def int32(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.int32)

    q = jax.ShapeDtypeStruct((kv_heads, rows, group, size), dtype)
    pages_of = jax.ShapeDtypeStruct((pool, kv_heads, PAGE_ROWS, size), dtype)
    tiles = Tiles(int32(), int32(rows), int32(rows), int32(rows))
    text: str = (
        jax.jit(attend)
        .trace(q, Pools(pages_of, pages_of), int32(rows), tiles, int32(3, pages))
        .lower(lowering_platforms=("cuda",))
        .as_text()
    )
    return text


FAST = {(1, 64), (5, 256), (16, 128)}


@pytest.mark.parametrize(
    ("group", "size"),
    [
        pytest.param(group, size, marks=() if (group, size) in FAST else pytest.mark.slow)
        for group in range(1, 17)
        for size in (64, 128, 256)
    ],
)
def test_every_group_and_size(group: int, size: int) -> None:
    assert lowered(group, size).count("custom_call @mosaic_gpu") == 2


@pytest.mark.parametrize(("pages", "rows"), [(1, 1), (LONGEST, 256)])
def test_partial_results_are_as_many_as_chunks(pages: int, rows: int) -> None:
    text = lowered(4, 128, pages=pages, rows=rows)
    chunks = chunks_of(pages * PAGE_ROWS)
    assert chunks == (1 if pages == 1 else 262)
    assert f"tensor<{chunks}x2x{rows * 4}x128xf32>" in text
    assert f"tensor<{rows * chunks}x8xi32>" in text


def test_pools_of_more_bytes_than_int32_counts() -> None:
    """Only page numbers are int32; the copy engine takes them as coordinates."""
    pool = 2**33 // (2 * PAGE_ROWS * 256) + 1
    assert f"tensor<{pool}x2x{PAGE_ROWS}x256xbf16>" in lowered(4, 256, pool=pool)


@pytest.mark.parametrize(("group", "size", "told"), [(4, 96, "4 query heads of 96"), (4, 512, "512"), (65, 64, "65")])
def test_what_does_not_fit_is_refused(group: int, size: int, told: str) -> None:
    with pytest.raises(Unsupported, match=f"{told}.*use the reference route"):
        lowered(group, size)


def test_other_numbers_are_refused() -> None:
    with pytest.raises(Unsupported, match="in float32"):
        lowered(4, 64, dtype=jnp.float32)
