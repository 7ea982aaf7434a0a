from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.typing import NDArray

from tests.row_invariance import assert_row_invariant, rows_of_normals
from tfjax.models.blocks.norm import RMSNorm
from tfjax.models.blocks.qk_norm import QKNorm, prepare_heads

ROWS, HEADS, SIZE, EPS = 33, 3, 8, 1e-2
FREQUENCY = (1 / 100.0 ** (np.arange(0, SIZE, 2) / SIZE)).astype(np.float32)
POSITION = (np.arange(ROWS) * 7).astype(np.int32)
ORDERS = list(itertools.product(QKNorm, (False, True)))


def norm() -> RMSNorm:
    made = RMSNorm(SIZE, EPS, jnp.float32)
    made.weight = nnx.Param(jnp.asarray(1 + rows_of_normals(1, SIZE)))
    return made


def oracle(x: NDArray[Any], order: QKNorm, *, interleaved: bool) -> NDArray[np.float64]:
    """With complex numbers: pair i turns by position * frequency[i]."""
    weight = 1 + rows_of_normals(1, SIZE).astype(np.float64)

    def normed(x: NDArray[Any]) -> NDArray[Any]:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight

    def turned(x: NDArray[Any]) -> NDArray[Any]:
        pairs = x.reshape(ROWS, HEADS, -1, 2) if interleaved else np.stack(np.split(x, 2, -1), -1)
        angle = POSITION[:, None] * FREQUENCY.astype(np.float64)
        z = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angle)[:, None]
        both = np.stack([z.real, z.imag], -1)
        return both.reshape(x.shape) if interleaved else np.concatenate([both[..., 0], both[..., 1]], -1)

    x = x.astype(np.float64)
    if order is QKNorm.NONE:
        return turned(x)
    return turned(normed(x)) if order is QKNorm.BEFORE_ROPE else normed(turned(x))


def prepared(x: Any, position: Any, order: QKNorm, *, interleaved: bool) -> jax.Array:
    made = None if order is QKNorm.NONE else norm()
    return prepare_heads(x, made, position, jnp.asarray(FREQUENCY), order=order, interleaved=interleaved)


@pytest.mark.parametrize(("order", "interleaved"), ORDERS)
def test_norm_and_rotation_in_the_order_named(order: QKNorm, interleaved: bool) -> None:
    x = rows_of_normals(0, ROWS, HEADS, SIZE)
    found = prepared(x, POSITION, order, interleaved=interleaved)
    np.testing.assert_allclose(found, oracle(x, order, interleaved=interleaved), rtol=1e-4, atol=1e-4)


def test_every_order_and_pairing_gives_other_numbers() -> None:
    x = rows_of_normals(0, ROWS, HEADS, SIZE)
    found = [np.asarray(prepared(x, POSITION, order, interleaved=pairs)) for order, pairs in ORDERS]
    for one, other in itertools.combinations(found, 2):
        assert not np.allclose(one, other, rtol=0.01, atol=0.01)


def test_the_order_does_not_matter_where_the_weights_of_a_pair_are_equal() -> None:
    """A rotation keeps the length of each pair, so only unequal weights tell the orders apart."""
    x = rows_of_normals(0, ROWS, HEADS, SIZE)
    made = norm()
    half = 1 + rows_of_normals(1, SIZE // 2)
    for interleaved in (False, True):
        weight = np.repeat(half, 2) if interleaved else np.tile(half, 2)
        made.weight = nnx.Param(jnp.asarray(weight))
        before, after = (
            prepare_heads(x, made, POSITION, jnp.asarray(FREQUENCY), order=order, interleaved=interleaved)
            for order in (QKNorm.BEFORE_ROPE, QKNorm.AFTER_ROPE)
        )
        np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("order", "interleaved"), ORDERS)
def test_rows_do_not_depend_on_others(order: QKNorm, interleaved: bool) -> None:
    run = jax.jit(lambda x, position: prepared(x, position, order, interleaved=interleaved))
    assert_row_invariant(run, rows_of_normals(0, ROWS, HEADS, SIZE), POSITION, counts=(1, 2, 5, 17, 33))


@pytest.mark.parametrize("order", [QKNorm.BEFORE_ROPE, QKNorm.AFTER_ROPE])
def test_an_order_without_a_norm_is_refused(order: QKNorm) -> None:
    with pytest.raises(ValueError, match=rf"{order.value} needs a norm.*none"):
        prepare_heads(jnp.ones((1, 1, 8)), None, jnp.zeros(1, jnp.int32), jnp.ones(4), order=order, interleaved=False)


def test_names_as_the_command_line_has_them() -> None:
    assert [order.value for order in QKNorm] == ["none", "before_rope", "after_rope"]
