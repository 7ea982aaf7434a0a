"""Between the q/k/v product and attention: norm and rotation of q and k, and k and v into their pages, in one pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.paged_attention import write_rows
from tfjax.kernels.reduce import in_order
from tfjax.kernels.rms_norm import rms_norm
from tfjax.kernels.rope import turned_heads
from tfjax.kernels.routes import Route


class Turns(NamedTuple):
    """Cosine and sine of every row's angles. Shapes: float32 [R, H / 2]."""

    cos: jax.Array
    sin: jax.Array


class HeadNorm(NamedTuple):
    """RMSNorm of each query and key head. Shapes: q, k [L, H]."""

    q: jax.Array
    k: jax.Array


class Places(NamedTuple):
    """Where each row's key and value go. Shapes: page, slot int32 [R]; `first_page` int32 [], added to every page.

    A row whose page is negative is not stored.
    """

    page: jax.Array
    slot: jax.Array
    first_page: jax.Array


class Pools(NamedTuple):
    """Pages of keys and values. Shapes: [P, K, PAGE_ROWS, H]; the layers of a stack lie one after another."""

    keys: jax.Array
    values: jax.Array


class Heads(NamedTuple):
    """How the q/k/v columns are heads, and what is done to q and k.

    Attributes:
        heads: of queries; with 0 the columns are keys and values alone, as those of a drafter's context are.
        norm_after: the norm follows the rotation instead of preceding it.
        eps: of the norm.
        interleaved: rotation turns pairs (2i, 2i + 1), else (i, i + H / 2).
    """

    heads: int
    kv_heads: int
    size: int
    norm_after: bool = False
    eps: float = 1e-6
    interleaved: bool = False

    @property
    def group(self) -> int:
        """Query heads that read one key head."""
        return self.heads // self.kv_heads


def turns(position: jax.Array, inverse_frequency: jax.Array) -> Turns:
    """Angles of all rows, once per forward. Shapes: int32 [R], float32 [H / 2]."""
    angle = position[:, None].astype(jnp.float32) * inverse_frequency
    return Turns(jnp.cos(angle), jnp.sin(angle))


def rope_write(
    parts: jax.Array,
    turned: Turns,
    places: Places,
    pools: Pools,
    layer: jax.Array,
    count: jax.Array,
    *,
    heads: Heads,
    norm: HeadNorm | None = None,
    spare: int = 0,
    route: Route = Route.REFERENCE,
) -> tuple[jax.Array, Pools]:
    """Add the parts in order and round; norm and rotate q and k; store k and v.

    A value that is not finite is stored as zeros and its key as NaN, as `write_rows` does. Spare rows have no meaning;
    `window_attention` says how many it likes to have.

    Shapes: parts float32 [split, R, (heads + 2 * kv_heads) * H], layer and count int32 [] (rows from count on are not
    stored) -> q [kv_heads, R + spare, group, H] in the dtype of the pools, and the pools.

    Raises:
        Unsupported: for heads that the device route cannot lay out.
    """
    return ROUTES[route](parts, turned, places, pools, layer, count, heads, norm, spare)


def _reference(
    parts: jax.Array,
    turned: Turns,
    places: Places,
    pools: Pools,
    layer: jax.Array,
    count: jax.Array,
    heads: Heads,
    norm: HeadNorm | None,
    spare: int,
) -> tuple[jax.Array, Pools]:
    dtype, rows = pools.keys.dtype, parts.shape[1]
    flat = in_order(parts).astype(dtype).reshape(rows, heads.heads + 2 * heads.kv_heads, heads.size)
    q, k, v = jnp.split(flat, [heads.heads, heads.heads + heads.kv_heads], 1)
    turn = functools.partial(turned_heads, cos=turned.cos, sin=turned.sin, interleaved=heads.interleaved)

    def prepared(x: jax.Array, weight: jax.Array | None) -> jax.Array:
        if weight is None:
            return turn(x)
        if heads.norm_after:
            return rms_norm(turn(x), weight, heads.eps)
        return turn(rms_norm(x, weight, heads.eps))

    q, k = prepared(q, norm and norm.q[layer]), prepared(k, norm and norm.k[layer])
    # Rows that do not count go to no page at all.
    stored = (jnp.arange(rows) < count) & (places.page >= 0)
    page = jnp.where(stored, places.page + places.first_page, len(pools.keys))
    written = Pools(*write_rows(pools.keys, pools.values, k, v, page, places.slot))
    q = jnp.pad(q, ((0, spare), (0, 0), (0, 0)))
    return q.reshape(rows + spare, heads.kv_heads, heads.group, heads.size).transpose(1, 0, 2, 3), written


def _gpu(
    parts: jax.Array,
    turned: Turns,
    places: Places,
    pools: Pools,
    layer: jax.Array,
    count: jax.Array,
    heads: Heads,
    norm: HeadNorm | None,
    spare: int,
) -> tuple[jax.Array, Pools]:
    from tfjax.kernels.gpu import rope_write as gpu

    return gpu.rope_write(parts, turned, places, pools, layer, count, heads=heads, norm=norm, spare=spare)


ROUTES: dict[
    Route,
    Callable[
        [jax.Array, Turns, Places, Pools, jax.Array, jax.Array, Heads, HeadNorm | None, int],
        tuple[jax.Array, Pools],
    ],
] = {Route.REFERENCE: _reference, Route.PALLAS_GPU: _gpu}
