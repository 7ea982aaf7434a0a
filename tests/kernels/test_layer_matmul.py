"""Products by a layer's matrix: parts, biases, gates, and packed stacks that have the bits of dense ones."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.row_invariance import assert_row_invariant, bits, rows_of_normals, spread
from tfjax.checkpoints.affine import AffineForm, dequantize, quantize
from tfjax.kernels.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.packed import PackedWeight

BF16 = ml_dtypes.bfloat16
LAYERS, OUT, SIZE, SPLIT = 3, 96, 256, 2
LAYER = jnp.int32(1)
COUNTS = (1, 2, 33)

FORMS = [AffineForm(width, group) for width in (4, 8) for group in (32, 64, 128)]
EVERY_FORM = pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.bits}-bit by {form.group_size}")


def normals(seed: int, *shape: int) -> Any:
    return jnp.asarray(rows_of_normals(seed, *shape, dtype=BF16))


def pair(form: AffineForm, scales: Any = BF16) -> tuple[PackedWeight, jax.Array]:
    """A stack packed, and as the loader makes it dense."""
    parts = quantize(spread(rows_of_normals(1, LAYERS, OUT, SIZE, dtype=scales)), form)
    packed = PackedWeight(*map(jnp.asarray, parts), form.bits, form.group_size, np.dtype(BF16))
    return packed, jnp.asarray(dequantize(parts, form).astype(BF16))


def same(one: Any, other: Any) -> bool:
    return np.array_equal(bits(one), bits(other))


def multiply(x: Any, weight: Any, **more: Any) -> Any:
    run = jax.jit(functools.partial(layer_matmul, split=SPLIT))
    return run(x, weight, LAYER, jnp.int32(len(x)), **more)


def gate(x: Any, weight: Any, **more: Any) -> Any:
    return jax.jit(layer_glu)(x, weight, LAYER, jnp.int32(len(x)), **more)


@EVERY_FORM
@pytest.mark.parametrize("scales", [BF16, np.float16])
def test_a_packed_stack_has_the_bits_of_the_dense_one(form: AffineForm, scales: Any) -> None:
    packed, dense = pair(form, scales)
    for rows in COUNTS:
        x = normals(rows, rows, SIZE)
        assert same(multiply(x, packed), multiply(x, dense)), rows
        assert same(gate(x, packed), gate(x, dense)), rows


def test_rows_of_a_packed_product_are_invariant() -> None:
    packed, _ = pair(AffineForm(4, 64))
    bias, rows = normals(3, LAYERS, OUT), rows_of_normals(2, 33, SIZE, dtype=BF16)
    assert_row_invariant(lambda x: jnp.moveaxis(multiply(x, packed, bias=bias), 1, 0), rows, counts=COUNTS)
    assert_row_invariant(lambda x: gate(x, packed, bias=bias), rows, counts=COUNTS)


def test_a_bias_is_added_to_the_first_part_alone() -> None:
    x, weight, bias = normals(1, 5, SIZE), normals(2, LAYERS, OUT, SIZE), normals(3, LAYERS, OUT)
    plain, with_bias = multiply(x, weight), multiply(x, weight, bias=bias)
    assert same(with_bias[1:], plain[1:])
    assert same(with_bias[0], np.asarray(plain[0]) + np.asarray(bias[1], np.float32))


def test_a_bias_reaches_gate_and_up_before_they_are_rounded() -> None:
    x, weight, bias = normals(1, 5, SIZE), normals(2, LAYERS, OUT, SIZE), normals(3, LAYERS, OUT)
    both = np.asarray(layer_matmul(x, weight, LAYER, jnp.int32(5), split=1)[0]) + np.asarray(bias[1], np.float32)
    g, u = np.split(both.astype(BF16).astype(np.float64), 2, -1)
    wanted = g / (1 + np.exp(-g)) * u
    np.testing.assert_allclose(np.asarray(gate(x, weight, bias=bias), np.float64), wanted, rtol=8e-3, atol=1e-6)


def test_the_layer_chooses_matrix_and_bias() -> None:
    x, weight, bias = normals(1, 5, SIZE), normals(2, LAYERS, OUT, SIZE), normals(3, LAYERS, OUT)
    found = [layer_matmul(x, weight, jnp.int32(at), jnp.int32(5), split=1, bias=bias)[0] for at in range(LAYERS)]
    for at, one in enumerate(found):
        wanted = np.asarray(x, np.float64) @ np.asarray(weight[at], np.float64).T + np.asarray(bias[at], np.float64)
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-3)
