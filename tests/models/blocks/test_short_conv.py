from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.row_invariance import rows_of_normals
from tfjax.kernels.paged_attention import Tiles
from tfjax.kernels.short_conv import RING
from tfjax.models.blocks.short_conv import ShortConv
from tfjax.models.rows import ConvCache, Rows

HIDDEN, LENGTH = 8, 70


def made(*, bias: bool, taps: int = 3) -> Any:
    block: Any = ShortConv(HIDDEN, taps, bias=bias, dtype=jnp.float32)
    for seed, (path, shape) in enumerate([("bcx", (3 * HIDDEN, HIDDEN)), ("out", (HIDDEN, HIDDEN))]):
        getattr(block, path).weight = nnx.Param(jnp.asarray(rows_of_normals(seed, *shape)))
        if bias:
            getattr(block, path).bias = nnx.Param(jnp.asarray(rows_of_normals(9 + seed, shape[0])))
    block.taps = nnx.Param(jnp.asarray(rows_of_normals(5, HIDDEN, taps)))
    if bias:
        block.bias = nnx.Param(jnp.asarray(rows_of_normals(6, HIDDEN)))
    return block


@pytest.mark.parametrize(("bias", "taps"), [(False, 3), (True, 4)])
def test_equals_the_published_block(bias: bool, taps: int) -> None:
    """B, C and x in this order; the last tap is the row's own; no activation."""
    block, x = made(bias=bias, taps=taps), rows_of_normals(4, LENGTH, HIDDEN)
    zero = np.zeros(LENGTH, np.int32)
    table = jnp.array([[1, 2], [0, 0]], jnp.int32)
    rows = Rows(zero, zero, np.arange(LENGTH, dtype=np.int32), Tiles(zero[0], zero, zero, zero), table)  # type: ignore[arg-type]
    cache = ConvCache(jnp.zeros((2, RING, HIDDEN)), jnp.zeros((3, taps - 1, HIDDEN)))
    found, written = block(jnp.asarray(x), cache, rows)

    def linear(module: Any, x: Any) -> Any:
        y = x @ np.asarray(module.weight[...], np.float64).T
        return y if module.bias is None else y + np.asarray(module.bias[...], np.float64)

    before, after, inner = np.split(linear(block.bcx, x.astype(np.float64)), 3, -1)
    u = np.concatenate([np.zeros((taps - 1, HIDDEN)), before * inner])
    weight = np.asarray(block.taps[...], np.float64)
    total = sum(weight[:, tap] * u[tap : tap + LENGTH] for tap in range(taps))
    if bias:
        total = total + np.asarray(block.bias[...], np.float64)
    np.testing.assert_allclose(found, linear(block.out, after * total), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(written.tails[1], u[64:][: taps - 1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(written.ring[0, 69], u[69 + taps - 1], rtol=1e-4, atol=1e-4)
