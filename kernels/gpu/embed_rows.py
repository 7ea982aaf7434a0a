"""Embedding rows: one block a token."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.launch import PLAIN, Grid, Launch, launch, scalar
from tfjax.kernels.gpu.tiles import put, row_layout


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
