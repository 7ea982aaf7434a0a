"""Norm, rotation and page write: the reference, against plain sums, and what is not stored."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.row_invariance import rows_of_normals
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.rms_norm import rms_norm
from tfjax.kernels.rope import rotate
from tfjax.kernels.rope_write import HeadNorm, Heads, Places, Pools, rope_write, turns

ROWS, HEADS, KV, LAYER, PAGES, SPLIT = 5, 4, 2, 1, 3, 2
POSITION = jnp.asarray([7, 900, 0, 41, 131_071], jnp.int32)


def frequency(size: int) -> jax.Array:
    return jnp.float32(1e4) ** -(jnp.arange(0, size, 2, dtype=jnp.float32) / size)


def columns(size: int, heads: int = HEADS) -> jax.Array:
    return jnp.asarray(rows_of_normals(1, SPLIT, ROWS, (heads + 2 * KV) * size))


def norm_of(size: int) -> HeadNorm:
    return HeadNorm(*(jnp.asarray(1 + 0.1 * rows_of_normals(seed, 2, size)) for seed in (2, 3)))


def empty(size: int) -> Pools:
    return Pools(*[jnp.full((2 * PAGES, KV, PAGE_ROWS, size), -3.0)] * 2)


def written(parts: jax.Array, heads: Heads, norm: HeadNorm | None, page: Any, count: int = ROWS) -> Any:
    places = Places(jnp.asarray(page, jnp.int32), jnp.arange(ROWS, dtype=jnp.int32) + 3, jnp.int32(LAYER * PAGES))
    turned = turns(POSITION, frequency(heads.size))
    return rope_write(
        parts,
        turned,
        places,
        empty(heads.size),
        jnp.int32(LAYER),
        jnp.int32(count),
        heads=heads,
        norm=norm,
        spare=2,
    )


@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("order", ["none", "before", "after"])
def test_equals_the_operators_one_after_another(size: int, interleaved: bool, order: str) -> None:
    heads = Heads(HEADS, KV, size, order == "after", 1e-6, interleaved)
    norm = norm_of(size)
    parts = columns(size)
    q, pools = written(parts, heads, norm if order != "none" else None, [1, 2, 1, 2, 2])
    flat = (parts[0] + parts[1]).reshape(ROWS, -1, size)

    def prepared(x: jax.Array, weight: jax.Array) -> jax.Array:
        x = rms_norm(x, weight, 1e-6) if order == "before" else x
        x = rotate(x, POSITION, frequency(size), interleaved=interleaved)
        return rms_norm(x, weight, 1e-6) if order == "after" else x

    wanted = prepared(flat[:, :HEADS], norm.q[LAYER]).reshape(ROWS, KV, HEADS // KV, size).swapaxes(0, 1)
    assert q.shape == (KV, ROWS + 2, HEADS // KV, size)
    np.testing.assert_allclose(q[:, :ROWS], wanted, atol=1e-5)
    page = LAYER * PAGES + np.array([1, 2, 1, 2, 2])
    key, value = (pool[page, :, np.arange(ROWS) + 3] for pool in pools)
    np.testing.assert_allclose(key, prepared(flat[:, HEADS : HEADS + KV], norm.k[LAYER]), atol=1e-5)
    np.testing.assert_array_equal(value, flat[:, HEADS + KV :])


def test_the_order_and_the_pairs_are_not_the_same_thing() -> None:
    results = [
        written(columns(64), Heads(HEADS, KV, 64, after, 1e-6, pairs), norm_of(64), [1] * ROWS)[0][:, :ROWS]
        for after in (False, True)
        for pairs in (False, True)
    ]
    for i, one in enumerate(results):
        assert all(float(jnp.max(jnp.abs(one - other))) > 0.01 for other in results[:i])


def test_rows_without_a_page_are_not_stored() -> None:
    whole = written(columns(64), Heads(HEADS, KV, 64), None, [1, 2, 1, 2, 2])
    q, pools = written(columns(64), Heads(HEADS, KV, 64), None, [1, -1, 1, -1, 2], count=4)
    np.testing.assert_array_equal(q, whole[0])
    page, slot = LAYER * PAGES + np.array([1, 2, 1, 2, 2]), np.arange(ROWS) + 3
    for pool, other in zip(pools, whole[1], strict=True):
        assert np.array_equal(np.all(pool != -3.0, axis=(1, 3)).nonzero(), [[4, 4], [3, 5]])
        np.testing.assert_array_equal(pool[page, :, slot][::2][:2], other[page, :, slot][::2][:2])


def test_columns_without_queries_store_the_same_keys_and_values() -> None:
    heads = Heads(HEADS, KV, 64, interleaved=True)
    _, whole = written(columns(64), heads, norm_of(64), [1] * ROWS)
    context = columns(64)[..., HEADS * 64 :]
    q, pools = written(context, Heads(0, KV, 64, interleaved=True), norm_of(64), [1] * ROWS)
    assert q.shape == (KV, ROWS + 2, 0, 64)
    np.testing.assert_array_equal(pools.keys, whole.keys)
    np.testing.assert_array_equal(pools.values, whole.values)
