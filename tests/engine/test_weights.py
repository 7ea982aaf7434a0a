from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from numpy.typing import NDArray

from tests.engine.packed_models import quantized, silent
from tests.models.test_lfm2_config import HF_DENSE, HF_MOE
from tests.models.tiny import ODD_HEADS, TINY
from tests.models.tiny_lfm2 import MOE
from tests.models.tiny_stacked import KERNELS, stacked_form
from tests.row_invariance import bits
from tfjax.checkpoints import Checkpoint, CheckpointError
from tfjax.engine import weights
from tfjax.engine.kernel_choice import Kernels
from tfjax.engine.memory import DoesNotFit
from tfjax.engine.weights import check_tensors, load_model, read_model
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.models import lfm2
from tfjax.models.config import ConfigError
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.llama import FAMILY, LlamaConfig, cache_bytes_per_position, sources

PATH = Path("somewhere/model")


class Tensors:
    """Random float32 tensors of the shapes that a config demands, by name."""

    def __init__(self, config: LlamaConfig, seed: int = 0):
        random = np.random.default_rng(seed)
        parts = [part for found in sources(config).values() for part in found]
        self.arrays: dict[str, NDArray[Any]] = {p.name: random.normal(size=p.shape).astype(np.float32) for p in parts}

    @property
    def infos(self) -> dict[str, Any]:
        return {name: SimpleNamespace(shape=x.shape, file=PATH / "a.safetensors") for name, x in self.arrays.items()}

    def read(self, name: str) -> NDArray[Any]:
        return self.arrays[name]


class Unread(Tensors):
    """Tensors that must not be read."""

    def read(self, name: str) -> NDArray[Any]:
        raise AssertionError(f"{name} is read")


def checkpoint_of(config: LlamaConfig, tensors: Any) -> Checkpoint:
    hf = {
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "intermediate_size": config.inner,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope.theta,
        "max_position_embeddings": config.context,
        "tie_word_embeddings": config.tied,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
    }
    nothing: Any = None
    return Checkpoint(PATH, "safetensors", "LlamaForCausalLM", hf, {}, tensors, nothing)


def loaded(config: LlamaConfig, tensors: Any, dtype: str = "float32") -> Any:
    return load_model(checkpoint_of(config, tensors), dtype, lambda phase, share: None)


@pytest.mark.parametrize("config", [TINY, ODD_HEADS])
def test_every_tensor_reaches_its_parameter(config: LlamaConfig) -> None:
    tensors = Tensors(config)
    model = loaded(config, tensors)
    assert model.config == config
    state = {".".join(map(str, path)): leaf for path, leaf in nnx.to_flat_state(nnx.state(model.module))}
    assert state.keys() == sources(config).keys()
    for path, parts in sources(config).items():
        wanted = np.concatenate([tensors.arrays[part.name] for part in parts])
        assert np.array_equal(bits(state[path][...]), bits(wanted)), path


@pytest.mark.parametrize(
    ("dtype", "wanted"), [("auto", jnp.bfloat16), ("bfloat16", jnp.bfloat16), ("float32", jnp.float32)]
)
def test_parameters_have_the_asked_dtype(dtype: str, wanted: Any) -> None:
    tensors = Tensors(TINY)
    model = loaded(TINY, tensors, dtype)
    assert model.dtype == wanted
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model.module))} == {jnp.dtype(wanted)}
    embedding = tensors.arrays["model.embed_tokens.weight"]
    rounded = embedding if wanted == jnp.float32 else embedding.astype(ml_dtypes.bfloat16)
    assert np.array_equal(bits(model.module.embedding[...]), bits(rounded))


def test_progress_ends_at_the_whole() -> None:
    shares: list[float] = []
    load_model(checkpoint_of(TINY, Tensors(TINY)), "float32", lambda phase, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.layers.1.self_attn.k_proj.weight", "model.norm.weight"]
)
def test_a_missing_tensor_is_named(name: str) -> None:
    tensors = Tensors(TINY)
    shape = tensors.arrays.pop(name).shape
    with pytest.raises(CheckpointError) as refusal:
        loaded(TINY, tensors)
    for word in (name, "missing", str(shape), str(PATH)):
        assert word in str(refusal.value)


@pytest.mark.parametrize("name", ["model.layers.0.mlp.down_proj.weight", "model.layers.1.input_layernorm.weight"])
def test_a_wrong_shape_is_named(name: str) -> None:
    tensors = Tensors(TINY)
    right = tensors.arrays[name].shape
    tensors.arrays[name] = np.zeros((*right[:-1], right[-1] + 1), np.float32)
    with pytest.raises(CheckpointError) as refusal:
        loaded(TINY, tensors)
    for word in (name, str(right), str(tensors.arrays[name].shape), "a.safetensors"):
        assert word in str(refusal.value)


def test_a_transposed_matrix_is_a_wrong_shape() -> None:
    tensors = Tensors(TINY)
    name = "model.layers.0.mlp.up_proj.weight"
    tensors.arrays[name] = tensors.arrays[name].T
    with pytest.raises(CheckpointError, match=name):
        loaded(TINY, tensors)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.2.mlp.up_proj.weight", "extra"])
def test_a_superfluous_tensor_is_named(name: str) -> None:
    tensors = Tensors(TINY)
    tensors.arrays[name] = np.zeros(3, np.float32)
    with pytest.raises(CheckpointError, match=name):
        loaded(TINY, tensors)


def test_stored_frequencies_and_a_copy_of_a_tied_head_are_passed_over() -> None:
    tensors = Tensors(TINY)
    wanted = loaded(TINY, tensors).module.head_weight
    tensors.arrays["lm_head.weight"] = np.zeros((TINY.vocab, TINY.hidden), np.float32)
    tensors.arrays["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(4, np.float32)
    model = loaded(TINY, tensors).module
    assert np.array_equal(model.head_weight, wanted)
    assert model.head is None


def test_an_untied_head_must_be_there() -> None:
    tensors = Tensors(TINY)
    with pytest.raises(CheckpointError, match=r"lm_head.weight is missing"):
        loaded(replace(TINY, tied=False), tensors)


def test_shapes_are_checked_before_anything_is_read() -> None:
    class Unreadable(Tensors):
        def read(self, name: str) -> NDArray[Any]:
            raise AssertionError("read before the shapes were checked")

    tensors = Unreadable(TINY)
    del tensors.arrays["model.norm.weight"]
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        loaded(TINY, tensors)


def test_an_unknown_architecture_is_refused() -> None:
    checkpoint = replace(checkpoint_of(TINY, Tensors(TINY)), architecture="GPT2LMHeadModel")
    with pytest.raises(ConfigError, match="GPT2LMHeadModel"):
        load_model(checkpoint, "float32", lambda phase, share: None)


def test_the_check_alone_accepts_what_fits() -> None:
    check_tensors(checkpoint_of(TINY, Tensors(TINY)), sources(TINY))


def test_more_context_than_the_model_has_is_refused_before_weights_are_read() -> None:
    checkpoint = checkpoint_of(TINY, Unread(TINY))
    with pytest.raises(DoesNotFit, match=f"--context {TINY.context + 1} .*{TINY.context}"):
        load_model(checkpoint, "float32", lambda phase, share: None, context=TINY.context + 1)


# LFM2 with experts.


def lfm2_loaded(architecture: str, hf: Any, config: Lfm2Config, dtype: str = "float32") -> tuple[Any, Tensors]:
    """The loaded module of tensors that fit `config`, and these."""
    tensors = Tensors(TINY)
    random = np.random.default_rng(1)
    parts = [part for found in lfm2.sources(config).values() for part in found]
    tensors.arrays = {part.name: random.normal(size=part.shape).astype(np.float32) for part in parts}
    nothing: Any = None
    checkpoint = Checkpoint(PATH, "safetensors", architecture, hf, {}, tensors, nothing)
    return load_model(checkpoint, dtype, lambda phase, share: None).module, tensors


def test_experts_are_stacked_gate_first_and_taps_lose_their_middle_axis() -> None:
    model, tensors = lfm2_loaded("Lfm2MoeForCausalLM", HF_MOE, MOE)
    layer = model.layers[1]
    name = "model.layers.1.feed_forward.experts"
    for expert in range(HF_MOE["num_experts"]):
        gate_up = np.concatenate([tensors.arrays[f"{name}.{expert}.{part}.weight"] for part in ("w1", "w3")])
        assert np.array_equal(layer.feed_forward.gate_up[...][expert], gate_up)
        assert np.array_equal(layer.feed_forward.down[...][expert], tensors.arrays[f"{name}.{expert}.w2.weight"])
    taps = model.layers[0].operator.taps[...]
    assert np.array_equal(taps, tensors.arrays["model.layers.0.conv.conv.weight"][:, 0])


def test_a_parameters_own_dtype_wins() -> None:
    model, tensors = lfm2_loaded("Lfm2MoeForCausalLM", HF_MOE, MOE, "bfloat16")
    router = model.layers[1].feed_forward.router
    assert (router.weight[...].dtype, router.bias[...].dtype) == (jnp.bfloat16, jnp.float32)
    assert np.array_equal(router.bias[...], tensors.arrays["model.layers.1.feed_forward.expert_bias"])


@pytest.mark.parametrize(("adjusted", "stored"), [(True, 60), (False, 40)])
def test_a_width_that_contradicts_the_rule_is_explained(adjusted: bool, stored: int) -> None:
    """Either way round: the flag is on and the weights are as wide as the config says, or the reverse."""
    hf = HF_DENSE | {"intermediate_size": 60, "block_auto_adjust_ff_dim": adjusted, "block_multiple_of": 8}
    config = lfm2.config_from_hf(hf)
    assert config.inner == (40 if adjusted else 60)
    with pytest.raises(CheckpointError) as refusal:
        lfm2_loaded("Lfm2ForCausalLM", hf, replace(config, inner=stored))
    words = ["feed_forward.w1.weight", f"({stored}, 32)", f"({config.inner}, 32)", "intermediate_size 60"]
    for word in (*words, "block_auto_adjust_ff_dim"):
        assert word in str(refusal.value)


@pytest.mark.parametrize("tied", [True, False])
def test_stacks_are_read_from_the_same_tensors(tied: bool) -> None:
    config = replace(TINY, tied=tied)
    tensors = Tensors(config)
    checkpoint = checkpoint_of(config, tensors)
    model = read_model(checkpoint, FAMILY, config, "bfloat16", lambda phase, share: None, kernels=KERNELS)
    wanted = stacked_form(load_model(checkpoint, "bfloat16", lambda phase, share: None).module)
    assert model.kernels is KERNELS
    for (path, one), (_, other) in zip(*(nnx.to_flat_state(nnx.state(m)) for m in (wanted, model.module)), strict=True):
        assert np.array_equal(bits(one[...]), bits(other[...])), path
    assert model.weight_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(wanted)))
    cache = model.empty_cache(5, 3)
    assert cache.keys.shape == (config.layers, 5, config.kv_heads, PAGE_ROWS, config.head_dim)
    positions = 5 * PAGE_ROWS
    assert sum(pool.nbytes for pool in cache) == positions * cache_bytes_per_position(config, jnp.dtype(jnp.bfloat16))


def test_kernels_whose_form_takes_dense_weights_get_no_packed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(weights, "choose_kernels", lambda wanted, *_: (asked.append(wanted), KERNELS)[1])
    checkpoint = checkpoint_of(TINY, Tensors(TINY))
    assert load_model(checkpoint, "float32", lambda phase, share: None).kernels is KERNELS
    assert load_model(checkpoint, "float32", lambda phase, share: None, kernels="reference").kernels is KERNELS
    assert asked == ["auto", "reference"]
    seen: list[Kernels] = []
    monkeypatch.setattr(weights, "takes_packed", lambda family: False)
    monkeypatch.setattr(weights, "read_model", lambda *_, kernels, **more: (seen.append(kernels), 1 / 0)[0])
    with pytest.raises(ZeroDivisionError):
        load_model(checkpoint, "float32", lambda phase, share: None, weights="packed")
    assert seen[0].route == "reference"
    assert "--weights is packed" in seen[0].reason


def test_a_quantized_model_that_would_fill_the_memory_stays_packed_rather_than_run_by_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no weight can stay packed, or the dense ones leave room, the kernels serve it."""
    monkeypatch.setattr(weights, "choose_kernels", lambda *_: KERNELS)
    monkeypatch.setattr(weights, "memory_budget", lambda: 1000)
    checkpoint = quantized(tmp_path, "llama")
    packed = load_model(checkpoint, "bfloat16", silent, weights="auto")
    assert packed.expansion_bytes
    assert packed.kernels.route == "reference"
    assert "would fill the memory" in packed.kernels.reason
    plain = checkpoint_of(TINY, Tensors(TINY))
    assert load_model(plain, "bfloat16", silent, weights="auto").kernels is KERNELS
    monkeypatch.setattr(weights, "memory_budget", lambda: 1 << 40)
    assert load_model(checkpoint, "bfloat16", silent, weights="auto").kernels is KERNELS


def test_a_parameter_that_its_sources_do_not_fill_is_no_model() -> None:
    """Its memory is not initialized, so that the rest would be any numbers."""
    short = {name: parts[:-1] if len(parts) > 1 else parts for name, parts in sources(TINY).items()}
    checkpoint = checkpoint_of(TINY, Tensors(TINY))
    beside = [part.name for parts in sources(TINY).values() for part in parts]
    with pytest.raises(AssertionError, match="values of a parameter have a source"):
        read_model(checkpoint, replace(FAMILY, sources=lambda _: short), TINY, "float32", silent, beside=beside)


class MadeWhenRead(Tensors):
    """Bfloat16 tensors that take memory only while somebody holds what was read."""

    def read(self, name: str) -> NDArray[Any]:
        return np.ones(self.arrays[name].shape, ml_dtypes.bfloat16)


def test_a_stack_is_read_with_one_of_its_tensors_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's own arrays; what is on the device stays within their memory on a CPU."""
    config = replace(TINY, hidden=64, inner=1024, layers=32)
    tensors = MadeWhenRead(config)
    largest = max(array.size * 2 for array in tensors.arrays.values())
    put: list[tuple[int, jax.Array]] = []
    on_device = jax.device_put

    def seen(array: NDArray[Any]) -> jax.Array:
        put.append((array.ctypes.data, on_device(array)))
        return put[-1][1]

    monkeypatch.setattr(jax, "device_put", seen)
    tracemalloc.start()
    try:
        model = read_model(checkpoint_of(config, tensors), FAMILY, config, "bfloat16", silent, kernels=KERNELS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    room = 4 * largest
    assert model.module.gate_up[...].nbytes > 6 * room  # type: ignore[attr-defined]
    assert peak < model.weight_bytes + room
    if jax.default_backend() == "cpu":
        assert all(address == array.unsafe_buffer_pointer() for address, array in put)
