from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.tiny import ODD_HEADS, TINY, Part, Streams, random_llama
from tests.row_invariance import bits
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.weights import load_model
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.models.blocks.rope import LinearScaling, Llama3Scaling, RopeConfig
from tfjax.models.config import ConfigError
from tfjax.models.llama import FAMILY, Llama, LlamaConfig, cache_bytes_per_position, empty_cache, sources
from tfjax.models.registry import family_for

GOLDENS = Path(__file__).parents[1] / "goldens"
VARIANTS = sorted(path.name.removeprefix("tiny_llama_") for path in GOLDENS.glob("tiny_llama_*"))
HF = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 = SCALED | {"original_max_position_embeddings": 32}


# Reading config.json.


def test_reads_a_config() -> None:
    assert LlamaConfig.from_hf(HF) == TINY


HONOURED = {
    "vocab_size": (65, {"vocab": 65}),
    "hidden_size": (64, {"hidden": 64, "head_dim": 16}),
    "intermediate_size": (40, {"inner": 40}),
    "num_hidden_layers": (3, {"layers": 3}),
    "num_attention_heads": (2, {"heads": 2, "head_dim": 16}),
    "num_key_value_heads": (1, {"kv_heads": 1}),
    "head_dim": (16, {"head_dim": 16}),
    "rms_norm_eps": (1e-3, {"norm_eps": 1e-3}),
    "max_position_embeddings": (99, {"context": 99}),
    "tie_word_embeddings": (False, {"tied": False}),
    "attention_bias": (True, {"attention_bias": True}),
    "mlp_bias": (True, {"mlp_bias": True}),
    "rope_theta": (5e5, {"rope": RopeConfig(5e5)}),
    "rope_scaling": (LLAMA3, {"rope": RopeConfig(1e4, Llama3Scaling(8.0, 1.0, 4.0, 32))}),
    "rope_parameters": (
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 7.0},
        {"rope": RopeConfig(7.0, LinearScaling(2.0))},
    ),
}


@pytest.mark.parametrize("key", HONOURED)
def test_every_key_changes_the_config(key: str) -> None:
    value, changes = HONOURED[key]
    assert LlamaConfig.from_hf(HF | {key: value}) == replace(TINY, **changes)


def test_every_field_is_read_from_some_key() -> None:
    read = {name for _, changes in HONOURED.values() for name in changes}
    assert read == {field.name for field in fields(LlamaConfig)}


@pytest.mark.parametrize("key", ["num_key_value_heads", "head_dim", "hidden_act", "attention_bias", "mlp_bias"])
def test_null_is_as_good_as_missing(key: str) -> None:
    base = {name: value for name, value in HF.items() if name != key}
    assert LlamaConfig.from_hf(base | ({} if key == "hidden_act" else {key: None})) == LlamaConfig.from_hf(base)


REFUSED = [
    ("hidden_act", "gelu"),
    ("rope_interleaved", True),
    ("sliding_window", 4096),
    ("attention_multiplier", 0.5),
    ("logits_scaling", 8.0),
    ("residual_multiplier", 0.22),
    ("partial_rotary_factor", 0.5),
    ("num_local_experts", 8),
    ("quantization_config", {"bits": 4}),
    ("qk_norm", True),
    ("final_logit_softcapping", 30.0),
    ("layer_types", ["full_attention"]),
    ("vocab_size", 0),
    ("vocab_size", "64"),
    ("num_hidden_layers", -1),
    ("num_hidden_layers", 2.0),
    ("num_attention_heads", True),
    ("num_attention_heads", 5),
    ("num_key_value_heads", 3),
    ("num_key_value_heads", 0),
    ("num_key_value_heads", -2),
    ("head_dim", 7),
    ("head_dim", "8"),
    ("rms_norm_eps", "1e-5"),
    ("rms_norm_eps", 0.0),
    ("rms_norm_eps", float("nan")),
    ("rope_theta", -1.0),
    ("rope_theta", "big"),
    ("tie_word_embeddings", "yes"),
    ("attention_bias", 1),
    ("mlp_bias", "false"),
    ("max_position_embeddings", 0),
]


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        LlamaConfig.from_hf(HF | {key: value})
    assert key in str(refusal.value)
    assert (str(value) if key.startswith("num_") else repr(value)) in str(refusal.value)


REQUIRED = [
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps",
    "max_position_embeddings",
]  # fmt: skip


@pytest.mark.parametrize("key", REQUIRED)
@pytest.mark.parametrize("gone", ["missing", "null"])
def test_a_missing_key_is_named(key: str, gone: str) -> None:
    config = {name: value for name, value in HF.items() if name != key} | ({key: None} if gone == "null" else {})
    with pytest.raises(ConfigError, match=key):
        LlamaConfig.from_hf(config)


def test_a_config_without_rope_theta_has_that_of_the_first_llamas() -> None:
    config = {name: value for name, value in HF.items() if name != "rope_theta"}
    assert LlamaConfig.from_hf(config).rope == RopeConfig(10_000.0)


def test_harmless_keys_are_let_through(caplog: pytest.LogCaptureFixture) -> None:
    assert LlamaConfig.from_hf(HF | {"_name_or_path": "x", "use_cache": True, "pretraining_tp": 1}) == TINY
    assert not caplog.records
    assert LlamaConfig.from_hf(HF | {"favourite_colour": "blue"}) == TINY
    assert "favourite_colour" in caplog.text


def test_the_registry_knows_the_family() -> None:
    assert family_for("LlamaForCausalLM") is FAMILY


# Shapes.


@pytest.mark.parametrize("config", [TINY, ODD_HEADS, replace(TINY, attention_bias=True), replace(TINY, mlp_bias=True)])
def test_sources_have_the_shapes_of_the_parameters(config: LlamaConfig) -> None:
    state = dict(nnx.to_flat_state(nnx.state(nnx.eval_shape(lambda: Llama(config, jnp.float32)))))
    shapes = {".".join(map(str, path)): leaf.get_value().shape for path, leaf in state.items()}
    found = {}
    for path, parts in sources(config).items():
        assert len({part.shape[1:] for part in parts}) == 1
        found[path] = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
    assert found == shapes


def test_cache_bytes_are_those_of_the_cache() -> None:
    for dtype in (jnp.float32, jnp.bfloat16):
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(empty_cache(ODD_HEADS, 3, PAGE_ROWS, 2, dtype)))
        assert size == 3 * PAGE_ROWS * cache_bytes_per_position(ODD_HEADS, dtype)


# The forward.


@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_transformers(variant: str) -> None:
    directory = GOLDENS / f"tiny_llama_{variant}"
    golden = json.loads((directory / "golden.json").read_text())
    model = load_model(open_checkpoint(directory), "float32", lambda phase, share: None)
    streams = Streams(model.module)
    streams.tokens[0, : len(golden["input_ids"])] = golden["input_ids"]
    streams.forward(40, Part(0, 0, 40), tile_rows=40)
    found = np.stack([streams.logits[0, position] for position in range(40)])
    wanted = np.array(golden["logits"])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert np.array_equal(found.argmax(-1), wanted.argmax(-1))


def test_goldens_cover_what_a_config_can_say() -> None:
    assert len(VARIANTS) >= 9


def test_parameters_are_no_constants_of_the_program() -> None:
    streams = Streams(random_llama(TINY, jnp.float32))
    rows = jax.tree.map(jnp.asarray, _some_rows(streams))

    def run(parameters: Any, cache: Any) -> Any:
        return nnx.merge(streams.definition, parameters)(cache, rows, tile_rows=4)

    constants = jax.make_jaxpr(run)(streams.parameters, streams.cache).consts
    assert sum(np.asarray(constant).nbytes for constant in constants) < 4096


def _some_rows(streams: Streams) -> Any:
    from tfjax.kernels.paged_attention import Tiles
    from tfjax.models.rows import Rows

    zero = np.zeros(8, np.int32)
    return Rows(zero, zero, np.arange(8, dtype=np.int32), Tiles(np.int32(2), zero, zero, zero), streams.page_table)


def test_an_untied_head_is_used() -> None:
    model = random_llama(ODD_HEADS, jnp.float32)
    assert not np.array_equal(bits(model.head_weight), bits(model.embedding[...]))
    tied = random_llama(TINY, jnp.float32)
    assert np.array_equal(bits(tied.head_weight), bits(tied.embedding[...]))
