"""Embedding rows: one block a token."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.packed_tiles import check_form, row_layout_of_groups, values_of
from tfjax.kernels.gpu.tiles import put, row_layout
from tfjax.kernels.packed import WORD_BITS, PackedWeight


def embed_rows(table: jax.Array, token: jax.Array, count: jax.Array, *, how: Launch = PLAIN) -> jax.Array:
    """The device route of `tfjax.kernels.embed_rows.embed_rows`."""
    layout = row_layout(table.shape[1])

    def body(count_ref: Any, token_ref: Any, table_ref: Any, out_ref: Any) -> None:
        row = lax.axis_index("row")

        @pl.when(row < count_ref[0])
        def _() -> None:
            put(out_ref.at[row], plgpu.load(table_ref.at[token_ref[row]], layout=layout, optimized=False))

    (out,), _ = launch(
        body,
        Grid((("row", len(token)),)),
        [jax.ShapeDtypeStruct((len(token), table.shape[1]), table.dtype)],
        [scalar(count), token, table],
        name=f"embed_{table.shape[1]}",
        how=how,
    )
    return out


def embed_packed_rows(table: PackedWeight, token: jax.Array, count: jax.Array, *, how: Launch = PLAIN) -> jax.Array:
    """The device route of `tfjax.kernels.embed_rows.embed_rows` for a packed table: only the rows named are read."""
    check_form(table)
    groups = table.scales.shape[1]
    words = table.group * table.bits // WORD_BITS
    layout = row_layout_of_groups(groups, words, WORD_BITS // table.bits)

    def read(ref: Any, *axes: int) -> Any:
        return plgpu.load(ref, layout=layout.reduce(axes), optimized=False)

    def along_words(x: Any) -> Any:
        wide = lax.broadcast_in_dim(x.astype(jnp.float32), (groups, words), (0,))
        return plgpu.layout_cast(wide, layout.reduce(2))

    def body(count_ref: Any, token_ref: Any, words_ref: Any, scales_ref: Any, biases_ref: Any, out_ref: Any) -> None:
        row = lax.axis_index("row")

        @pl.when(row < count_ref[0])
        def _() -> None:
            at = token_ref[row]
            scales, biases = (along_words(read(ref.at[at], 1, 2)) for ref in (scales_ref, biases_ref))
            put(out_ref.at[row], values_of(read(words_ref.at[at], 2), scales, biases, table.bits, layout))

    shape = (len(token), groups, words, WORD_BITS // table.bits)
    (out,), _ = launch(
        body,
        Grid((("row", len(token)),)),
        [jax.ShapeDtypeStruct(shape, table.dtype)],
        [scalar(count), token, table.words.reshape(-1, groups, words), table.scales, table.biases],
        name=f"embed_packed_{table.shape[1]}",
        how=how,
    )
    return out.reshape(len(token), table.shape[1])
