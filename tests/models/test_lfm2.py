from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.tiny_lfm2 import DENSE, MOE, random_lfm2
from tests.row_invariance import bits
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.models import lfm2, lfm2_moe
from tfjax.models.lfm2 import Lfm2, cache_bytes_per_lane, cache_bytes_per_position, empty_cache, sources
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.registry import family_for
from tfjax.models.rows import ConvCache, LayerCache

FORMS = [MOE, DENSE, replace(MOE, dense_layers=0, tied=False), replace(DENSE, conv_bias=False, attends=(False,) * 3)]


def test_the_registry_knows_both_families() -> None:
    assert family_for("Lfm2ForCausalLM") is lfm2.FAMILY
    assert family_for("Lfm2MoeForCausalLM") is lfm2_moe.FAMILY


@pytest.mark.parametrize("config", FORMS)
def test_sources_have_the_sizes_of_the_parameters(config: Lfm2Config) -> None:
    state = dict(nnx.to_flat_state(nnx.state(nnx.eval_shape(lambda: Lfm2(config, jnp.float32)))))
    shapes = {".".join(map(str, path)): leaf.get_value().shape for path, leaf in state.items()}
    found = sources(config)
    assert found.keys() == shapes.keys()
    for name, parts in found.items():
        assert sum(np.prod(part.shape) for part in parts) == np.prod(shapes[name]), name
        assert len({part.shape[1:] for part in parts}) == 1, name
        assert parts[0].shape[-1] == shapes[name][-1], name


def test_sources_have_the_published_names() -> None:
    names = [part.name for parts in sources(MOE).values() for part in parts]
    assert len(names) == len(set(names))
    layer = {name.removeprefix("model.layers.1.") for name in names if name.startswith("model.layers.1.")}
    experts = {f"feed_forward.experts.{e}.{w}.weight" for e in range(8) for w in ("w1", "w2", "w3")}
    parts = ("q_proj", "k_proj", "v_proj", "out_proj", "q_layernorm", "k_layernorm")
    attention = {f"self_attn.{part}.weight" for part in parts}
    norms = {"operator_norm.weight", "ffn_norm.weight"}
    assert layer == experts | attention | norms | {"feed_forward.gate.weight", "feed_forward.expert_bias"}
    conv = {name.removeprefix("model.layers.0.") for name in names if name.startswith("model.layers.0.")}
    dense = {f"feed_forward.{w}.weight" for w in ("w1", "w2", "w3")}
    assert conv == dense | norms | {f"conv.{name}.weight" for name in ("in_proj", "conv", "out_proj")}
    assert {name for name in names if "layers" not in name} == {
        "model.embed_tokens.weight",
        "model.embedding_norm.weight",
    }


def test_the_published_sizes_of_the_1_2b_model() -> None:
    """1,170,340,608 parameters in 148 tensors."""
    attends = tuple(index in (2, 5, 8, 10, 12, 14) for index in range(16))
    config = replace(
        DENSE, vocab=65536, hidden=2048, inner=8192, attends=attends, heads=32, kv_heads=8, taps=3, conv_bias=False,
        tied=True, dense_layers=16,
    )  # fmt: skip
    parts = [part for parts in sources(config).values() for part in parts]
    assert (len(parts), sum(int(np.prod(part.shape)) for part in parts)) == (148, 1_170_340_608)


@pytest.mark.parametrize("config", FORMS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_cache_bytes_are_those_of_the_cache(config: Lfm2Config, dtype: Any) -> None:
    cache = empty_cache(config, 5, PAGE_ROWS, 3, dtype)
    assert [type(layer) for layer in cache] == [LayerCache if attends else ConvCache for attends in config.attends]
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(cache))
    planned = 5 * PAGE_ROWS * cache_bytes_per_position(config, dtype) + 3 * cache_bytes_per_lane(config, dtype)
    assert size <= planned < size + 5 * PAGE_ROWS * np.dtype(dtype).itemsize


def test_an_untied_head_is_used() -> None:
    model, tied = random_lfm2(DENSE, jnp.float32), random_lfm2(MOE, jnp.float32)
    assert not np.array_equal(bits(model.head_weight), bits(model.embedding[...]))
    assert np.array_equal(bits(tied.head_weight), bits(tied.embedding[...]))
