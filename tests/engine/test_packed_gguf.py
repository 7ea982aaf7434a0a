"""GGUF files served packed: the parameters, replies and logits of the same files expanded at load."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray

from tests.checkpoints import gguf_files, gguf_lfm2_files
from tests.checkpoints.test_gguf_tensors import random_blocks
from tests.engine.packed_models import loaded, silent
from tests.engine.test_packed_engine import stage_of, told
from tests.engine.test_packed_kernels import DEVICE
from tests.engine.test_packing import parameters
from tests.kernels.gpu.test_lowering import lower
from tests.models.test_stacked_llama import PAGES, rows_of
from tests.models.tiny import Part, Streams
from tests.models.tiny_stacked import KERNELS
from tests.row_invariance import bits
from tfjax.checkpoints import Checkpoint, open_checkpoint
from tfjax.engine import weights
from tfjax.engine.fitting import fit_memory
from tfjax.engine.packing import packed_weights
from tfjax.engine.weights import LoadedModel, is_quantized, load_model
from tfjax.kernels.packed import PackedWeight, expanded
from tfjax.models.config import ConfigError
from tfjax.models.llama import Llama
from tfjax.models.stacked_llama import StackedLlama, tile_rows
from tfjax.text.loading import load_tokenizer

VOCAB, LAYERS = 64, 2
SHAPES = {
    name.replace("blk.0.", f"blk.{layer}."): shape
    for name, shape in gguf_files.SHAPES.items()
    for layer in range(LAYERS if name.startswith("blk.") else 1)
} | {"token_embd.weight": (VOCAB, gguf_files.HIDDEN)}
LLAMA = {name: shape for name, shape in SHAPES.items() if len(shape) == 2}
KEYS: Mapping[str, Any] = {
    "llama.block_count": LAYERS,
    "llama.vocab_size": VOCAB,
    "tokenizer.ggml.tokens": [str(token) for token in range(VOCAB)],
    "tokenizer.ggml.token_type": [1] * VOCAB,
}
"""More tokens than the file's usual ones, as the draw takes the likeliest twenty."""

QKV = "layers.0.attention.qkv.weight"
FOUND_QKV = "model.layers.0.self_attn"


def blocks_of(name: str, shape: tuple[int, ...], kind: str) -> tuple[NDArray[np.uint8], GGMLQuantizationType]:
    """A tensor's usual values in blocks; of types that the package cannot make, random ones."""
    stored = GGMLQuantizationType[kind]
    if kind.endswith("_K"):
        return random_blocks(shape, stored), stored
    values = np.random.default_rng(sum(name.encode())).standard_normal(shape).astype(np.float32)
    return np.asarray(quants.quantize(values, stored), np.uint8), stored


def llama(folder: Path, kind: str, kinds: Mapping[str, str] | None = None, norms: str = "F32") -> Checkpoint:
    """A Llama whose matrices are of one type, but for those that `kinds` names by GGUF name."""
    chosen = {name: (kinds or {}).get(name, kind) for name in LLAMA}
    quantized = {name: blocks_of(name, LLAMA[name], kind) for name, kind in chosen.items() if kind != "F32"}
    vectors = {name: shape for name, shape in SHAPES.items() if len(shape) == 1}
    ones = {name: np.ones(shape, np.float32) for name, shape in vectors.items() if norms == "F32"}
    quantized |= {name: blocks_of(name, shape, norms) for name, shape in vectors.items() if norms != "F32"}
    plain = {name: gguf_files.values(name, LLAMA[name]) for name, kind in chosen.items() if kind == "F32"}
    path = gguf_files.write_gguf(folder / "m.gguf", metadata=KEYS, tensors=ones | plain, quantized=quantized)
    return open_checkpoint(path)


def lfm2_moe(folder: Path) -> Checkpoint:
    """Of Q8_0, its experts of Q4_0: a stored stack, of which each expert is a piece."""
    shapes = gguf_lfm2_files.shapes("lfm2moe")
    named = {name: shape for name, shape in shapes.items() if len(shape) > 1 and "conv.conv" not in name}
    blocks = {
        name: blocks_of(name, shape, "Q4_0" if "_exps" in name else "Q8_0")
        for name, shape in named.items()
        if shape[-1] % 32 == 0
    }
    return open_checkpoint(gguf_lfm2_files.write(folder / "m.gguf", "lfm2moe", blocks=blocks))


def same_values(packed: LoadedModel, dense: LoadedModel) -> None:
    """Bit for bit, but that a zero of a negative scale has no sign: to add a zero takes it off the dense one's."""
    one, other = parameters(packed), parameters(dense)
    assert one.keys() == other.keys()
    for path, weight in one.items():
        wanted = other[path] + 0 if isinstance(weight, PackedWeight) else other[path]
        assert np.array_equal(bits(expanded(weight)), bits(wanted)), path


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_every_matrix_stays_packed_with_its_values(tmp_path: Path, kind: str, dtype: str) -> None:
    """Rows of q and k in the order of the model, embedding and tied head too."""
    checkpoint = llama(tmp_path, kind)
    packed, dense = loaded(checkpoint, "packed", dtype), loaded(checkpoint, "dense", dtype)
    same_values(packed, dense)
    found = packed_weights(nnx.state(packed.module))
    assert len(found) == sum(weight.ndim > 1 for weight in parameters(dense).values()) == 1 + 4 * LAYERS
    assert {(weight.bits, weight.group, weight.scales.dtype.name) for weight in found} == {
        (8 if kind == "Q8_0" else 4, 32, "float16")
    }


def test_experts_of_a_stored_stack_stay_packed(tmp_path: Path) -> None:
    checkpoint = lfm2_moe(tmp_path)
    packed, dense = loaded(checkpoint, "packed"), loaded(checkpoint, "dense")
    same_values(packed, dense)
    experts = parameters(packed)["layers.1.feed_forward.gate_up"]
    assert isinstance(experts, PackedWeight)
    assert (experts.bits, experts.shape) == (4, (3, 64, 64))


def test_memory_is_planned_for_the_packed_bytes(tmp_path: Path) -> None:
    """Five bits a value of Q4_0 with its group's scale and bias, nine of Q8_0."""
    checkpoint = llama(tmp_path, "Q4_0", {"token_embd.weight": "Q8_0"})
    packed, dense = loaded(checkpoint, "packed"), loaded(checkpoint, "dense")
    sizes = {name: int(np.prod(shape)) for name, shape in LLAMA.items()}
    norms = sum(weight.nbytes for weight in parameters(dense).values() if weight.ndim == 1)
    eight = sizes.pop("token_embd.weight")
    assert packed.weight_bytes == norms + (9 * eight + 5 * sum(sizes.values())) // 8
    plans = [fit_memory(model, asked=64, lanes=1) for model in (packed, dense)]
    assert plans[0].weight_bytes == packed.weight_bytes < 0.4 * dense.weight_bytes
    assert plans[1].budget_bytes - plans[0].budget_bytes == packed.expansion_bytes == 2 * 512 * 256


@pytest.mark.parametrize("form", [None, KERNELS], ids=["modules", "stacks"])
def test_packed_logits_are_the_dense_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Any) -> None:
    """Signs of zeros change none."""
    if form is not None:
        monkeypatch.setattr(weights, "choose_kernels", lambda *_: form)
    checkpoint = llama(tmp_path, "Q4_0", {"token_embd.weight": "Q8_0"})
    found = [logits_of(loaded(checkpoint, word), list(range(VOCAB))) for word in ("packed", "dense")]
    assert np.array_equal(bits(found[0]), bits(found[1]))
    assert len(np.unique(found[0].argmax(-1))) > 10


def logits_of(model: LoadedModel, tokens: list[int]) -> NDArray[np.float32]:
    """One stream's, of every position. Shapes: [tokens, V]."""
    module: Any = model.module
    streams = Streams(module, empty_cache=lambda config, pages, rows, lanes, dtype: model.empty_cache(pages, lanes))
    streams.tokens[0, : len(tokens)] = tokens
    for start in range(0, len(tokens), 64):
        streams.forward(64, Part(0, start, min(start + 64, len(tokens))), tile_rows=4)
    return np.stack([streams.logits[0, at] for at in range(len(tokens))])


@pytest.mark.slow
def test_replies_are_the_dense_ones(tmp_path: Path) -> None:
    checkpoint = llama(tmp_path, "Q4_0", {"token_embd.weight": "Q8_0"})
    dense, packed = (stage_of(loaded(checkpoint, word)) for word in ("dense", "packed"))
    packed.replies = wanted = told(dense, draft=False)
    assert told(packed, draft=True) == wanted
    assert packed.rejected


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        (
            {"blk.0.attn_v.weight": "Q6_K"},
            f"(Q6_K cannot stay packed, Q4_0 and Q4_1 and Q8_0 can): {FOUND_QKV}.v_proj.weight",
        ),
        ({"blk.0.attn_v.weight": "Q8_0"}, f"(their parts have several forms): {FOUND_QKV}.q_proj.weight"),
        ({"blk.0.attn_k.weight": "F32"}, f"(only some of their parts are quantized): {FOUND_QKV}.q_proj.weight"),
    ],
)
def test_what_cannot_stay_packed_is_expanded_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kinds: dict[str, str], reason: str
) -> None:
    checkpoint = llama(tmp_path, "Q4_1", kinds)
    packed = loaded(checkpoint, "packed")
    same_values(packed, loaded(checkpoint, "dense"))
    plain = [name for name, each in parameters(packed).items() if each.ndim > 1 and not isinstance(each, PackedWeight)]
    assert plain == [QKV]
    assert f"1 quantized parameter is expanded at load {reason}" in caplog.text


def test_types_of_one_form_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes, scales and biases of Q4_0 and Q4_1 are of one kind, so that they fill one stack."""
    monkeypatch.setattr(weights, "choose_kernels", lambda *_: KERNELS)
    checkpoint = llama(tmp_path, "Q4_1", {"blk.0.attn_v.weight": "Q4_0", "blk.1.ffn_down.weight": "Q4_0"})
    packed = loaded(checkpoint, "packed")
    assert isinstance(packed.module, StackedLlama)
    assert len(packed_weights(nnx.state(packed.module))) == 5
    same_values(packed, loaded(checkpoint, "dense"))


@pytest.mark.parametrize("kind", ["Q6_K", "Q8_0"])
def test_layers_of_several_forms_stay_packed_in_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A stack of them would be dense, for one layer's sake."""
    monkeypatch.setattr(weights, "choose_kernels", lambda *_: DEVICE)
    checkpoint = llama(tmp_path, "Q4_1", {"blk.1.ffn_down.weight": kind})
    packed = loaded(checkpoint, "packed")
    assert isinstance(packed.module, Llama)
    assert "packed alike" in packed.kernels.reason
    found = parameters(packed)
    assert isinstance(found["layers.0.mlp.down.weight"], PackedWeight)
    assert isinstance(found["layers.1.mlp.down.weight"], PackedWeight) == (kind == "Q8_0")


def test_a_file_with_nothing_to_pack_is_refused(tmp_path: Path) -> None:
    checkpoint = llama(tmp_path, "Q6_K")
    words = r"--weights packed: .*found F32, Q6_K, expected .*GGUF's Q4_0, Q4_1, Q8_0; .*--weights dense"
    with pytest.raises(ConfigError, match=words):
        load_model(checkpoint, "bfloat16", silent, weights="packed")
    assert not is_quantized(checkpoint)


def test_a_file_is_quantized_where_most_of_it_can_stay_packed(tmp_path: Path) -> None:
    for kinds in ({}, {"token_embd.weight": "Q6_K"}):
        assert is_quantized(llama(tmp_path, "Q4_1", kinds))
    others = {name: "Q6_K" for name in LLAMA if name != "token_embd.weight"}
    assert not is_quantized(llama(tmp_path, "Q8_0", others))


@pytest.mark.parametrize("form", ["stacks", "modules"])
def test_vectors_of_a_packed_type_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Norms of Q8_0, whose stack would be a matrix."""
    if form == "stacks":
        monkeypatch.setattr(weights, "choose_kernels", lambda *_: KERNELS)
    checkpoint = llama(tmp_path, "Q4_1", norms="Q8_0")
    packed, dense = (load_model(checkpoint, "bfloat16", silent, weights=how) for how in ("packed", "dense"))
    same_values(packed, dense)
    assert not isinstance(parameters(packed)["norm.weight" if form == "modules" else "attention_norm"], PackedWeight)


def test_auto_packs_what_would_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(weights, "choose_kernels", lambda *_: KERNELS)
    checkpoint = llama(tmp_path, "Q4_1")
    dense = load_model(checkpoint, "bfloat16", silent, weights="auto")
    assert (dense.expansion_bytes, dense.kernels) == (0, KERNELS)
    monkeypatch.setattr(weights, "memory_budget", lambda: dense.weight_bytes)
    packed = load_model(checkpoint, "bfloat16", silent, weights="auto")
    assert isinstance(packed.module, Llama)
    assert packed.weight_bytes < 0.5 * dense.weight_bytes
    assert "weights: packed 4-bit" in caplog.text


# The default model: SmolLM2-135M, Q4_1 with an embedding of Q8_0.

TEXT = """A harbour master keeps the book of tides. Every morning he reads the gauge, writes 3.42 m beside the hour and
compares it with the table that was printed in winter. When wind stands on the coast for days, the water comes early;
when the air is heavy, it stays out. def level(hours): return mean + sum(a * cos(w * hours + p) for a, w, p in parts)
He taught his daughter the names of the twelve largest constituents, M2, S2, N2, K1, O1 and the others, and she asked
why the moon should need so many names. "Because," he said, "it never goes round the same way twice." The capital of
France is Paris, the capital of Peru is Lima; 2, 3, 5, 7, 11, 13, 17 and 19 are the first primes."""


@pytest.mark.weights
def test_the_default_model_packed_has_the_logits_of_the_dense_one(smollm2_gguf: Path) -> None:
    checkpoint = open_checkpoint(smollm2_gguf)
    tokens = list(load_tokenizer(checkpoint).encode(TEXT))[:192]
    assert len(tokens) > 150
    packed, dense = loaded(checkpoint, "packed"), loaded(checkpoint, "dense")
    assert packed.weights == "packed 4-bit and 8-bit, 0.09 GiB"
    wanted = parameters(dense)
    for path, weight in parameters(packed).items():
        assert np.array_equal(bits(expanded(weight)), bits(wanted[path])), path
    one, other = (logits_of(model, tokens) for model in (packed, dense))
    assert np.array_equal(one.argmax(-1), other.argmax(-1))
    assert np.array_equal(bits(one), bits(other))
    # It is a language model that was compared: the next token is often its first guess.
    assert np.mean(one.argmax(-1)[:-1] == tokens[1:]) > 0.3


@pytest.mark.weights
@pytest.mark.slow
def test_the_default_model_packed_runs_by_device_kernels(smollm2_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as a machine without a device tells: nothing is refused, and the forward lowers."""
    monkeypatch.setattr(weights, "choose_kernels", lambda *_: DEVICE)
    model = loaded(open_checkpoint(smollm2_gguf), "packed")
    module: Any = model.module
    assert model.kernels is DEVICE
    assert (len(packed_weights(nnx.state(module))), model.expansion_bytes) == (5, 0)

    def step(cache: Any) -> Any:
        done = module(cache, rows_of(5), tile_rows=tile_rows(model.config))
        return module.logits(done.hidden), done.cache

    text = lower(step, jax.eval_shape(lambda: model.empty_cache(PAGES, 3)))
    assert all(name in text for name in ("packed_matmul_576x960", "packed_glu_576x1536", "embed_packed_576"))
    assert "packed_matmul_576x49152" in text
