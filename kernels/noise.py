"""Noise keyed by (seed, position, token): the same bits on every backend and for every shape."""

from __future__ import annotations

import jax
import jax.numpy as jnp

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

_SERIES = (
    *(0.14026358723640442, -0.1538853943347931, 0.13995806872844696, -0.1641596108675003),
    *(0.20011168718338013, -0.2500782012939453, 0.33333197236061096, -0.49999937415122986),
)
"""Of (log(1 + x) - x) / x^2 for |x| <= 1/3, the highest power first: a least maximum of the relative error, 3e-8."""

_LN_2 = 0.6931471824645996
_TWO_THIRDS = 0x3F2AAAAB
"""Bits of the least mantissa that `natural_log` leaves; the largest is below 4/3."""

_BELOW_ALL = -1024.0
"""Less than any product here."""


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


def _product(x: jax.Array, y: jax.Array | float) -> jax.Array:
    """x * y with a rounding of its own: the maximum stands where a compiler would join the addition that follows."""
    return jnp.maximum(x * y, _BELOW_ALL)


def _log_1p(x: jax.Array, halvings: jax.Array) -> jax.Array:
    """log((1 + x) * 2^halvings) for |x| <= 1/3, halvings being whole numbers."""
    series = jnp.full_like(x, _SERIES[0])
    for coefficient in _SERIES[1:]:
        series = _product(series, x) + coefficient
    return _product(halvings, _LN_2) + (x + _product(x, x * series))


def _reduced(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(y, k) with x = (1 + y) * 2^k and -1/3 <= y < 1/3, both exact, for positive normal x."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    power = (bits - _TWO_THIRDS) >> 23
    mantissa: jax.Array = jax.lax.bitcast_convert_type(bits - (power << 23), jnp.float32)
    return mantissa - 1, power.astype(jnp.float32)


def natural_log(x: jax.Array) -> jax.Array:
    """log(x) within 1.2 units in the last place, with the same bits from every compiler: no two roundings can be fused.

    Libraries differ in the last bit of their logarithms, and a token's noise must be the same wherever it is drawn.

    Shapes: float32 [...], positive and normal -> float32 [...].
    """
    return _log_1p(*_reduced(x))


def log_1m(x: jax.Array) -> jax.Array:
    """log(1 - x) for 2^-33 <= x < 1, with small x in full resolution; otherwise as `natural_log`."""
    rest, power = _reduced(1 - x)
    small = x <= 1 / 3
    return _log_1p(jnp.where(small, -x, rest), jnp.where(small, 0.0, power))


def token_noise(seed: tuple[jax.Array, jax.Array], position: jax.Array, token: jax.Array) -> jax.Array:
    """Standard Gumbel noise of one key each; device kernels call it too.

    The uniform variate is taken near 0, where float32 is dense, so that large noise values keep their resolution.

    Shapes: uint32 words (low, high), position and token, which broadcast together -> float32.
    """
    bits = threefry_2x32(seed, (position, token))
    uniform = jnp.minimum(bits.astype(jnp.float32) * 2.0**-32 + 2.0**-33, 1 - 2.0**-24)
    return -natural_log(-log_1m(uniform))


def gumbel(seed: jax.Array, position: jax.Array, ids: jax.Array) -> jax.Array:
    """Standard Gumbel noise for the token ids of every row.

    Shapes: seed uint32 [R, 2] (low word, high word), position int32 [R], ids [V] -> float32 [R, V].
    """
    counter = (position.astype(jnp.uint32)[:, None], ids.astype(jnp.uint32)[None])
    return token_noise((seed[:, :1], seed[:, 1:]), *counter)
