from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import random as extend_random

from tests.row_invariance import COUNTS, assert_row_invariant
from tfjax.kernels import noise as noise_module
from tfjax.kernels.noise import gumbel, log_1m, natural_log, threefry_2x32

KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), 0x6B200159),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), 0x1CB996FC),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), 0xC4923A9C),
]
"""(key, counter, first word): the known answers that come with the authors' Random123 library."""


def word(value: int) -> jax.Array:
    return jnp.array([value], jnp.uint32)


@pytest.mark.parametrize(("key", "counter", "first"), KNOWN)
def test_known_answers(key: tuple[int, int], counter: tuple[int, int], first: int) -> None:
    found = threefry_2x32((word(key[0]), word(key[1])), (word(counter[0]), word(counter[1])))
    assert int(found[0]) == first


def test_equals_the_cipher_of_jax() -> None:
    random = np.random.default_rng(0)
    key, counter = random.integers(0, 2**32, (2, 2, 50), dtype=np.uint32)
    ours = threefry_2x32((jnp.asarray(key[0]), jnp.asarray(key[1])), (jnp.asarray(counter[0]), jnp.asarray(counter[1])))
    for i in range(50):
        theirs = extend_random.threefry_2x32(jnp.asarray(key[:, i]), jnp.asarray(counter[:, i]))
        assert int(ours[i]) == int(theirs[0])


def noise(seed: int, position: int, tokens: int) -> np.ndarray:
    words = jnp.array([[seed & 0xFFFFFFFF, seed >> 32]], jnp.uint32)
    return np.asarray(gumbel(words, jnp.array([position], jnp.int32), jnp.arange(tokens)))[0]


def test_every_part_of_the_key_counts() -> None:
    base = noise(7, 3, 1000)
    for other in (noise(8, 3, 1000), noise(7 + (1 << 32), 3, 1000), noise(7, 4, 1000)):
        assert (base == other).mean() < 0.01


def test_a_token_has_its_noise_whatever_the_vocabulary() -> None:
    assert np.array_equal(noise(7, 3, 500), noise(7, 3, 1000)[:500])
    some = jnp.array([900, 3, 17])
    assert np.array_equal(gumbel(jnp.array([[7, 0]], jnp.uint32), jnp.array([3]), some)[0], noise(7, 3, 1000)[some])


def test_is_standard_gumbel() -> None:
    sample = np.concatenate([noise(11, position, 50_000) for position in range(4)]).astype(np.float64)
    assert np.isfinite(sample).all()
    assert sample.mean() == pytest.approx(np.euler_gamma, abs=0.02)
    assert sample.var() == pytest.approx(np.pi**2 / 6, rel=0.02)
    for quantile in (0.001, 0.1, 0.5, 0.9, 0.999):
        expected = np.exp(-np.exp(-np.quantile(sample, quantile)))
        assert expected == pytest.approx(quantile, abs=0.004)


def test_large_values_keep_their_resolution() -> None:
    """The largest of many draws are what decides a sampled token; they must not collapse to a few values."""
    largest = np.sort(np.concatenate([noise(12, position, 50_000) for position in range(4)]))[-200:]
    assert len(np.unique(largest)) == 200


def test_rows_are_invariant() -> None:
    random = np.random.default_rng(1)
    seed = random.integers(0, 2**32, (140, 2), dtype=np.uint32)
    position = random.integers(0, 100_000, 140).astype(np.int32)
    assert_row_invariant(jax.jit(lambda s, p: gumbel(s, p, jnp.arange(321))), seed, position, counts=COUNTS)


def test_is_the_same_in_every_version() -> None:
    """Seeds that users noted must go on giving the same replies."""
    expected = [3.2510548, 2.1308484, -0.5666065, 0.7897582]
    np.testing.assert_allclose(noise(2**63 + 12345, 77, 4), expected, rtol=1e-5)


def one_rounding_each(y: np.ndarray, power: np.ndarray) -> np.ndarray:
    """The series by numpy, which rounds every product and every sum."""
    total = np.full_like(y, noise_module._SERIES[0])
    for coefficient in noise_module._SERIES[1:]:
        total = total * y + np.float32(coefficient)
    return power * np.float32(noise_module._LN_2) + (y + y * (y * total))


def log_by_numpy(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.int32)
    power = (bits - np.int32(noise_module._TWO_THIRDS)) >> 23
    mantissa = (bits - (power << 23)).view(np.float32)
    return one_rounding_each(mantissa - np.float32(1), power.astype(np.float32))


@pytest.mark.parametrize(("rows", "tokens"), [(1, 1), (1, 7), (3, 64), (8, 1000), (16, 5003), (1, 49152)])
def test_no_compiler_joins_two_roundings(rows: int, tokens: int) -> None:
    """XLA on CPU joins products and sums for some vector widths and row counts; each is rounded once less then."""
    x = np.exp(np.random.default_rng(rows).uniform(-20, 3, (rows, tokens))).astype(np.float32)
    assert np.array_equal(np.asarray(jax.jit(natural_log)(x)).view(np.int32), log_by_numpy(x).view(np.int32))


EDGES = [2 / 3, 4 / 3, 1.0, 0.5, 2.0**-33, 22.87, 2.0**-24, 1 - 2.0**-24, 1 + 2.0**-23]


def test_logarithms_are_near_those_of_float64() -> None:
    """Within 1.2 units in the last place, on both sides of the places where the exponent changes."""
    beside = [np.nextafter(np.float32(edge), np.float32(side)) for edge in EDGES for side in (0, 99)]
    random = np.exp(np.random.default_rng(1).uniform(-23, 4, 200_000))
    x = np.concatenate([np.float32(EDGES), beside, random]).astype(np.float32)
    found, wanted = np.asarray(natural_log(jnp.asarray(x))), np.log(x.astype(np.float64))
    unit = np.spacing(np.abs(wanted).astype(np.float32))
    assert (np.abs(found - wanted) <= 1.2 * unit + 1e-45).all()
    small = x[x < 1]
    wanted = np.log1p(-small.astype(np.float64))
    np.testing.assert_allclose(np.asarray(log_1m(jnp.asarray(small))), wanted, rtol=2e-7)
