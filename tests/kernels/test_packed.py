"""A packed weight gives the bits of the weight that the loader expands, in every operator that takes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.row_invariance import assert_row_invariant, bits, rows_of_normals, spread
from tfjax.checkpoints.affine import BITS, GROUP_SIZES, AffineForm, Packed, dequantize, quantize
from tfjax.kernels import packed as kernel
from tfjax.kernels.experts import Experts, all_experts, experts_mlp, grouped_by_expert
from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.packed import PackedWeight, expanded
from tfjax.models.blocks.experts import ExpertsConfig, Router

BF16 = ml_dtypes.bfloat16
COUNTS = (1, 2, 3, 5, 7, 16, 17, 33)
OUT, SIZE = 40, 384
FORMS = [AffineForm(width, group) for width in BITS for group in GROUP_SIZES]
EVERY_FORM = pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.bits}-bit by {form.group_size}")


def stored(form: AffineForm, *shape: int, scales: Any = BF16, seed: int = 0) -> Packed:
    """A random weight as a file holds it."""
    return quantize(spread(rows_of_normals(seed, *shape, dtype=scales)), form)


def on_device(parts: Packed, form: AffineForm, dtype: Any = BF16) -> PackedWeight:
    words, scales, biases = map(jnp.asarray, parts)
    return PackedWeight(words, scales, biases, form.bits, form.group_size, np.dtype(dtype))


def pair(
    form: AffineForm, *shape: int, dtype: Any = BF16, scales: Any = BF16, seed: int = 0
) -> tuple[PackedWeight, NDArray[Any]]:
    """The weight packed, and as the loader makes it dense."""
    parts = stored(form, *shape, scales=scales, seed=seed)
    return on_device(parts, form, dtype), dequantize(parts, form).astype(dtype)


def same(one: Any, other: Any) -> bool:
    return np.array_equal(bits(one), bits(other))


@EVERY_FORM
@pytest.mark.parametrize(("dtype", "scales"), [(BF16, BF16), (np.float32, BF16), (BF16, np.float16)])
def test_values_are_the_loaders(form: AffineForm, dtype: Any, scales: Any) -> None:
    packed, dense = pair(form, OUT, SIZE, dtype=dtype, scales=scales)
    assert (packed.shape, packed.ndim, packed.dtype) == (dense.shape, 2, dense.dtype)
    assert same(jax.jit(expanded)(packed), dense)


def test_a_dense_weight_expands_to_itself() -> None:
    weight = jnp.ones((3, 4))
    assert expanded(weight) is weight


@EVERY_FORM
def test_products_have_the_bits_of_the_dense_weights(form: AffineForm) -> None:
    packed, dense = pair(form, OUT, SIZE)
    product = jax.jit(rows_matmul)
    for rows in COUNTS:
        x = spread(rows_of_normals(rows, rows, SIZE, dtype=BF16), seed=rows)
        assert same(product(x, packed), product(x, jnp.asarray(dense))), rows


@pytest.mark.parametrize("rows", COUNTS)
def test_products_in_float32(rows: int) -> None:
    packed, dense = pair(AffineForm(4, 64), OUT, SIZE, dtype=np.float32)
    x, product = rows_of_normals(rows, rows, SIZE), jax.jit(rows_matmul)
    assert same(product(x, packed), product(x, jnp.asarray(dense)))


def test_rows_of_a_packed_product_are_invariant() -> None:
    packed, _ = pair(AffineForm(4, 64), OUT, SIZE, dtype=np.float32)
    rows = spread(rows_of_normals(3, 33, SIZE), seed=6)
    assert_row_invariant(jax.jit(lambda x: rows_matmul(x, packed)), rows, counts=(1, 2, 5, 17, 33))


@EVERY_FORM
def test_tokens_find_their_rows(form: AffineForm) -> None:
    packed, dense = pair(form, OUT, SIZE)
    token = np.array([3, 0, OUT - 1, 3], np.int32)
    assert same(jax.jit(lambda token: packed[token])(token), dense[token])
    assert packed[...] is packed


@pytest.mark.parametrize(
    ("operator", "form"),
    [(grouped_by_expert, AffineForm(6, 64)), (all_experts, AffineForm(3, 32)), (experts_mlp, AffineForm(4, 32))],
)
def test_experts_have_the_bits_of_the_dense_ones(operator: Callable[..., Any], form: AffineForm) -> None:
    experts, size, inner = 8, 64, 128
    gate_up, down = (
        pair(form, experts, *shape, seed=seed) for seed, shape in ((1, (2 * inner, size)), (2, (size, inner)))
    )
    random, run = np.random.default_rng(0), jax.jit(operator)
    for rows in (1, 33):
        x = rows_of_normals(rows, rows, size, dtype=BF16)
        chosen = np.stack([random.permutation(experts)[:2] for _ in range(rows)]).astype(np.int32)
        weight = (random.random((rows, 2), np.float32),) if operator is experts_mlp else ()
        packed, dense = (
            run(x, chosen, *weight, Experts(*map(jnp.asarray if at else lambda w: w, (gate_up[at], down[at]))))
            for at in (0, 1)
        )
        assert same(packed, dense), rows


def test_a_packed_router_chooses_and_weighs_alike() -> None:
    config = ExpertsConfig(count=5, picked=2, inner=8, biased=True, normalised=True, scale=1.0)
    packed, dense = pair(AffineForm(8, 64), config.count, 128)
    router = Router(128, config, jnp.bfloat16)
    x, found = rows_of_normals(4, 9, 128, dtype=BF16), []
    for weight in (packed, jnp.asarray(dense)):
        router.weight.set_value(weight)
        found.append(router(jnp.asarray(x)))
    assert all(same(*both) for both in zip(*found, strict=True))


def test_what_it_takes_in_memory() -> None:
    packed, dense = pair(AffineForm(4, 64), OUT, SIZE)
    assert packed.nbytes == OUT * (SIZE // 2 + 2 * 2 * SIZE // 64)
    assert packed.nbytes < 0.29 * dense.nbytes
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(packed)) == packed.nbytes


def test_a_part_of_a_stack_stays_packed() -> None:
    packed, dense = pair(AffineForm(6, 32), 3, OUT, SIZE)
    part = packed.at(1)
    assert isinstance(part, PackedWeight)
    assert (part.shape, part.bits, part.group, part.dtype) == ((OUT, SIZE), 6, 32, BF16)
    assert same(expanded(part), dense[1])


def test_no_compiler_may_merge_or_leave_out_a_step() -> None:
    """Where the expansion became part of the product, that could add in another order or use unrounded values."""
    packed, _ = pair(AffineForm(4, 64), OUT, SIZE)
    program = jax.jit(rows_matmul).lower(jnp.ones((2, SIZE), jnp.bfloat16), packed).as_text()
    steps = ("stablehlo.reduce_precision", "stablehlo.optimization_barrier", "stablehlo.dot_general")
    places = [program.find(step) for step in steps]
    assert min(places) >= 0
    assert places == sorted(places)


# Faults that the comparison must show.


def is_seen(monkeypatch: pytest.MonkeyPatch, name: str, fault: Any, form: AffineForm) -> bool:
    """Whether a product with the packed weight then differs from the dense one's."""
    monkeypatch.setattr(kernel, name, fault)
    packed, dense = pair(form, OUT, SIZE)
    x = rows_of_normals(0, 5, SIZE, dtype=BF16)
    return not same(rows_matmul(jnp.asarray(x), packed), rows_matmul(jnp.asarray(x), jnp.asarray(dense)))


@pytest.mark.parametrize("form", [AffineForm(4, 64), AffineForm(6, 32)])
def test_codes_in_the_wrong_order_are_seen(monkeypatch: pytest.MonkeyPatch, form: AffineForm) -> None:
    right, each = kernel.codes, 32 // np.gcd(form.bits, 32)

    def turned(words: jax.Array, width: int) -> jax.Array:
        found = right(words, width)
        return found.reshape(*found.shape[:-1], -1, each)[..., ::-1].reshape(found.shape)

    assert not is_seen(monkeypatch, "codes", right, form)
    assert is_seen(monkeypatch, "codes", turned, form)


def changed(change: Callable[[PackedWeight], PackedWeight]) -> Callable[[PackedWeight], jax.Array]:
    right = kernel._expand
    return lambda weight: right(change(weight))


def without_bias(weight: PackedWeight) -> PackedWeight:
    nothing = jnp.zeros_like(weight.biases)
    return PackedWeight(weight.words, weight.scales, nothing, weight.bits, weight.group, weight.dtype)


def next_group(weight: PackedWeight) -> PackedWeight:
    scales, biases = (jnp.roll(part, 1, -1) for part in (weight.scales, weight.biases))
    return PackedWeight(weight.words, scales, biases, weight.bits, weight.group, weight.dtype)


def scales_swapped(weight: PackedWeight) -> PackedWeight:
    return PackedWeight(weight.words, weight.biases, weight.scales, weight.bits, weight.group, weight.dtype)


@pytest.mark.parametrize("fault", [without_bias, next_group, scales_swapped])
@pytest.mark.parametrize("form", [AffineForm(4, 64), AffineForm(8, 128)])
def test_wrong_groups_and_lost_biases_are_seen(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[PackedWeight], PackedWeight], form: AffineForm
) -> None:
    assert is_seen(monkeypatch, "_expand", changed(fault), form)
