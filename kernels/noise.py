"""Noise keyed by (seed, position, token): the same bits on every backend and for every shape."""

from __future__ import annotations

import jax
import jax.numpy as jnp

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry_2x32(key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array]) -> jax.Array:
    """First word of the Threefry-2x32 block cipher with 20 rounds.

    Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

    Shapes: uint32 words that broadcast together -> uint32.
    """
    words = (*key, key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    a, b = counter[0] + words[0], counter[1] + words[1]
    for block in range(5):
        for turn in _ROTATIONS[block % 2]:
            a = a + b
            b = a ^ ((b << turn) | (b >> (32 - turn)))
        a = a + words[(block + 1) % 3]
        b = b + words[(block + 2) % 3] + jnp.uint32(block + 1)
    return a


def gumbel(seed: jax.Array, position: jax.Array, ids: jax.Array) -> jax.Array:
    """Standard Gumbel noise for the token ids of every row.

    The uniform variate is taken near 0, where float32 is dense, so that large noise values keep their resolution.

    Shapes: seed uint32 [R, 2] (low word, high word), position int32 [R], ids [V] -> float32 [R, V].
    """
    counter = (position.astype(jnp.uint32)[:, None], ids.astype(jnp.uint32)[None])
    bits = threefry_2x32((seed[:, :1], seed[:, 1:]), counter)
    uniform = jnp.minimum(bits.astype(jnp.float32) * 2.0**-32 + 2.0**-33, 1 - 2.0**-24)
    return -jnp.log(-jnp.log1p(-uniform))
