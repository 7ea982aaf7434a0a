"""A stacked Llama with packed stacks: the bits of its dense stacks, in its own form and laid out in modules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.kernels.gpu.test_lowering import lower
from tests.models.test_stacked_llama import PAGES, TILE_ROWS, rows_of
from tests.models.tiny import TINY, random_llama
from tests.models.tiny_stacked import stacked_form
from tfjax.checkpoints.affine import AffineForm, quantize
from tfjax.kernels.packed import PackedWeight, expanded
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.routes import Route
from tfjax.models.llama import LlamaConfig
from tfjax.models.stacked_llama import StackedLlama, empty_cache, unstacked

CONFIG = replace(TINY, layers=2, vocab=256, hidden=256, inner=512, heads=4, kv_heads=2, head_dim=64)
BIASED = replace(CONFIG, attention_bias=True, mlp_bias=True)
PACKED = ("embedding", "qkv", "out", "gate_up", "down", "head")
DENSE = ("attention_norm", "mlp_norm", "qkv_bias", "out_bias", "gate_up_bias", "down_bias")
FORM = AffineForm(4, 32)


def packed_form(config: LlamaConfig, route: Route = Route.REFERENCE) -> StackedLlama:
    """Random parameters, packed where they may be."""
    model = stacked_form(random_llama(config, jnp.bfloat16))
    model.route = route
    for name in PACKED:
        if getattr(model, name) is not None:
            parts = quantize(np.asarray(getattr(model, name)[...]), FORM)
            weight = PackedWeight(*map(jnp.asarray, parts), FORM.bits, FORM.group_size, np.dtype(jnp.bfloat16))
            setattr(model, name, nnx.Param(weight))
    return model


def dense_form(packed: StackedLlama) -> StackedLlama:
    """The same parameters, expanded."""
    model = StackedLlama(packed.config, jnp.dtype(jnp.bfloat16), packed.route)
    for name in (*PACKED, *DENSE):
        if getattr(packed, name) is not None:
            setattr(model, name, nnx.Param(expanded(getattr(packed, name)[...])))
    return model


def run(model: Any) -> tuple[jax.Array, jax.Array]:
    cache = empty_cache(model.config, PAGES, PAGE_ROWS, 3, jnp.dtype(jnp.bfloat16))

    @nnx.jit
    def step(model: Any, cache: Any) -> tuple[jax.Array, jax.Array]:
        done = model(cache, rows_of(5), tile_rows=TILE_ROWS)
        return done.hidden[:5], model.logits(done.hidden[:5])

    hidden, scores = step(model, cache)
    return hidden, scores


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, tied=False), BIASED], ids=["tied", "untied", "biased"])
def test_packed_stacks_have_the_bits_of_dense_ones(config: LlamaConfig) -> None:
    packed = packed_form(config)
    for one, other in zip(run(packed), run(dense_form(packed)), strict=True):
        assert jnp.array_equal(one, other)
        assert bool(jnp.isfinite(one).all())


def test_in_modules_the_parameters_stay_packed() -> None:
    packed = packed_form(CONFIG)
    before = {name: jnp.array(expanded(getattr(packed, name)[...])) for name in ("qkv", "down", "embedding")}
    model = unstacked(packed)
    for layer, own in enumerate(model.layers):
        for stack, parameter in (("qkv", own.attention.qkv.weight), ("down", own.mlp.down.weight)):
            assert isinstance(parameter[...], PackedWeight)
            assert jnp.array_equal(expanded(parameter[...]), before[stack][layer])
    assert jnp.array_equal(expanded(model.embedding[...]), before["embedding"])


@pytest.mark.parametrize(
    "config", [pytest.param(CONFIG, id="plain"), pytest.param(BIASED, id="biased", marks=pytest.mark.slow)]
)
def test_the_packed_step_lowers_for_cuda(config: LlamaConfig) -> None:
    model = packed_form(config, Route.PALLAS_GPU)
    cache = empty_cache(config, PAGES, PAGE_ROWS, 3, jnp.dtype(jnp.bfloat16))

    def step(cache: Any) -> Any:
        done = model(cache, rows_of(5), tile_rows=8)
        return model.logits(done.hidden), done.cache

    text = lower(step, cache)
    assert all(name in text for name in ("packed_matmul_256x512", "packed_glu_256x512", "embed_packed_256"))
    assert "stablehlo.dot_general" not in text
