"""Norm, rotation and page write lower for CUDA in every form, and what does not fit is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tfjax.kernels.gpu.rope_write import rope_write
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.rope_write import HeadNorm, Heads, Places, Pools, Turns
from tfjax.kernels.routes import Unsupported

ROWS = 5


def lowered(heads: Heads, *, normed: bool = True, pages: int = 9) -> str:
    def shape(*sizes: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, dtype)

    number, row = shape(dtype=jnp.int32), shape(ROWS, dtype=jnp.int32)
    angle = shape(ROWS, heads.size // 2, dtype=jnp.float32)
    pool = shape(pages, heads.kv_heads, PAGE_ROWS, heads.size)
    norm = HeadNorm(*[shape(2, heads.size)] * 2) if normed else None
    parts = shape(2, ROWS, (heads.heads + 2 * heads.kv_heads) * heads.size, dtype=jnp.float32)
    text: str = (
        jax.jit(lambda *arrays: rope_write(*arrays[:-1], heads=heads, norm=arrays[-1], spare=3))
        .trace(parts, Turns(angle, angle), Places(row, row, number), Pools(pool, pool), number, number, norm)
        .lower(lowering_platforms=("cuda",))
        .as_text()
    )
    return text


@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (0, 4)])
@pytest.mark.parametrize(
    "size", [pytest.param(size, marks=pytest.mark.slow if size == 128 else ()) for size in (64, 128, 256)]
)
@pytest.mark.parametrize("interleaved", [False, True])
def test_heads_of_every_size(heads: int, kv_heads: int, size: int, interleaved: bool) -> None:
    text = lowered(Heads(heads, kv_heads, size, norm_after=True, interleaved=interleaved))
    assert text.count("custom_call @mosaic_gpu") == 1
    assert text.count("output_operand_alias<") == 2, "keys and values have to be written in place"


@pytest.mark.parametrize("norm_after", [False, True])
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.slow
def test_every_order_of_norm_and_rotation(group: int, norm_after: bool) -> None:
    for normed in (False, True):
        assert lowered(Heads(4 * group, 4, 64, norm_after, 1e-6, True), normed=normed)


def test_pools_of_more_numbers_than_int32_counts() -> None:
    """Only page numbers are int32; offsets inside a pool are not."""
    heads = Heads(8, 8, 128, interleaved=True)
    pages = 2**31 // (8 * PAGE_ROWS * 128) + 1
    assert f"tensor<{pages}x8x{PAGE_ROWS}x128xbf16>" in lowered(heads, pages=pages)


@pytest.mark.parametrize("size", [32, 96, 192, 512])
def test_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(Unsupported, match=f"heads of {size}.*use the reference route"):
        lowered(Heads(8, 4, size))
