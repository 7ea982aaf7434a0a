from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.checkpoints.hf_files import write_directory
from tests.engine.drafters.drafter_files import IDS, TOKENIZER
from tests.engine.drafters.dspark_files import LIQUID, TARGET, dspark_arrays, dspark_directory
from tfjax.checkpoints.affine import AffineForm, dequantize, quantize
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.dspark_config import AS_STORED, DSparkOptions
from tfjax.engine.drafters.loading import UnusableDrafter, load_drafter
from tfjax.models.blocks.qk_norm import QKNorm

OWN: Any = TARGET.module


def load(path: Path, options: DSparkOptions = AS_STORED, *, depth: int = 4, dtype: str = "float32") -> DraftingModel:
    return load_drafter(path, TARGET, TOKENIZER, dtype, depth, lambda phase, share: None, dspark=options)


def same_buffer(one: Any, other: Any) -> bool:
    return bool(one[...].unsafe_buffer_pointer() == other[...].unsafe_buffer_pointer())


def test_liquids_packaging_shares_the_targets_embedding_and_head(tmp_path: Path) -> None:
    model = load(dspark_directory(tmp_path / "little"))
    module: Any = model.loaded.module
    assert (model.name, model.kind, model.vocab, model.context, model.taps) == ("little", "dspark", 264, 256, (0, 2))
    assert model.ids.tolist() == list(range(260))
    assert same_buffer(module.embedding, OWN.embedding)
    assert same_buffer(module.head, OWN.embedding)
    stored = sum(array.nbytes for array in dspark_arrays().values())
    assert model.weight_bytes == stored - 4 * 16 * 4 + 260 * 4  # padding rows of w2 are cut; ids are kept
    assert np.array_equal(module.layers[1].attention.q.weight[...], dspark_arrays()["layers.1.self_attn.q_proj.weight"])


def test_own_ends_are_read(tmp_path: Path) -> None:
    ends = {
        name: np.random.default_rng(i).normal(0, 1, (264, 40)).astype(np.float32)
        for i, name in enumerate(("embed_tokens.weight", "lm_head.weight"))
    }
    model = load(dspark_directory(tmp_path, **ends))
    module: Any = model.loaded.module
    assert np.array_equal(module.embedding[...], ends["embed_tokens.weight"])
    assert np.array_equal(module.head[...], ends["lm_head.weight"])
    assert not model.shared
    assert module.logits(jnp.ones((2, 40))).shape == (2, 260)


@pytest.mark.parametrize("rows", [264, 24])
def test_a_reduced_vocabulary(rows: int, tmp_path: Path) -> None:
    config = LIQUID | {"draft_vocab_size": 24}
    w1 = np.random.default_rng(0).normal(0, 1, (rows, 16)).astype(np.float32)
    arrays = {"markov_head.markov_w1.weight": w1, "d2t": IDS - np.arange(24)}
    model = load(dspark_directory(tmp_path, config=config, **arrays))
    module: Any = model.loaded.module
    assert model.ids.tolist() == IDS.tolist()
    assert np.array_equal(module.head[...], np.asarray(OWN.embedding[...])[IDS])
    expected = w1[IDS] if rows == 264 else w1
    assert np.array_equal(module.markov.embed(jnp.asarray(IDS)), expected)
    assert module.markov.embed(jnp.array([1])).any() == (rows == 264)
    bias, _ = module.markov(module.markov.start(2), jnp.array([11, 1]), jnp.ones((2, 40)))
    assert bias.shape == module.logits(jnp.ones((2, 40))).shape == (2, 24)


def test_speculators_packaging(tmp_path: Path) -> None:
    """Its config nests the layers' keys, and its exports may carry what only training read."""
    layers = {key: value for key, value in LIQUID.items() if not key.startswith(("block", "markov", "dflash"))}
    config = {
        "architectures": ["DSparkSpeculator"],
        "speculators_model_type": "dspark",
        "aux_hidden_state_layer_ids": [1, 3],
        "transformer_layer_config": layers,
        "mask_token_id": 200,
        "block_size": 6,
        "markov_rank": 16,
        "draft_vocab_size": 24,
        "rope_is_neox_style": True,
    }
    arrays = dspark_arrays(LIQUID | {"draft_vocab_size": 24}) | {
        "d2t": IDS - np.arange(24),
        "t2d": np.isin(np.arange(264), IDS),
        "verifier_norm.weight": np.ones(40, np.float32),
        "lm_head.weight": np.ones((24, 40), np.float32),
    }
    model = load(write_directory(tmp_path, config=config, tensors=arrays))
    read = model.loaded.config
    assert (read.taps, read.block, read.first_slot, read.interleaved) == ((0, 2), 5, 1, False)
    assert (read.own_head, model.ids.tolist()) == (True, IDS.tolist())


def test_a_prefix_before_every_name(tmp_path: Path) -> None:
    arrays = dspark_arrays()
    names = dict.fromkeys(arrays) | {f"model.{name}": array for name, array in arrays.items()}
    module: Any = load(dspark_directory(tmp_path, **names)).loaded.module
    assert np.array_equal(module.norm.weight[...], arrays["norm.weight"])


def test_without_norms(tmp_path: Path) -> None:
    """The norms' weights that the file has are not read then."""
    module: Any = load(dspark_directory(tmp_path), DSparkOptions(qk_norm=QKNorm.NONE)).loaded.module
    assert module.layers[0].attention.q_norm is None


def test_eight_bits_round_every_matrix_of_whole_groups(tmp_path: Path) -> None:
    config = LIQUID | {"intermediate_size": 64}
    module: Any = load(dspark_directory(tmp_path, config=config), DSparkOptions(bits=8)).loaded.module
    down = dspark_arrays(config)["layers.0.mlp.down_proj.weight"]
    form = AffineForm(8, 64)
    assert np.array_equal(module.layers[0].mlp.down.weight[...], dequantize(quantize(down, form), form))
    assert not np.array_equal(module.layers[0].mlp.down.weight[...], down)


def test_an_8_bit_file_is_not_rounded_again(tmp_path: Path) -> None:
    config = LIQUID | {"intermediate_size": 64}
    arrays = dspark_arrays(config)
    name, form = "layers.0.mlp.down_proj", AffineForm(8, 32)
    packed = quantize(arrays[f"{name}.weight"], form)
    stored = {f"{name}.weight": packed.words, f"{name}.scales": packed.scales, f"{name}.biases": packed.biases}
    quantization = {"quantization": {"group_size": 32, "bits": 8}}
    path = write_directory(tmp_path, config=config | quantization, tensors=arrays | stored)
    for bits in (16, 8):
        module: Any = load(path, DSparkOptions(bits=bits)).loaded.module
        assert np.array_equal(module.layers[0].mlp.down.weight[...], dequantize(packed, form))
        assert np.array_equal(module.layers[0].mlp.gate_up.weight[:64], arrays["layers.0.mlp.gate_proj.weight"])


def test_the_confidence_head_keeps_float32(tmp_path: Path) -> None:
    module: Any = load(dspark_directory(tmp_path), dtype="bfloat16").loaded.module
    stored = dspark_arrays()["confidence_head.proj.weight"]
    assert np.array_equal(module.confidence_head.weight[...], stored)
    assert module.fc.weight[...].dtype == jnp.bfloat16


def test_a_depth_beyond_the_block_is_no_reason_to_refuse(tmp_path: Path) -> None:
    short = LIQUID | {"max_position_embeddings": 7}
    assert load(dspark_directory(tmp_path / "a", config=short), depth=20).context == 7
    with pytest.raises(UnusableDrafter, match="trained for 6 positions, fewer than the 7"):
        load(dspark_directory(tmp_path / "b", config=LIQUID | {"max_position_embeddings": 6}), depth=20)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers.1.mlp.up_proj.weight": None}, "layers.1.mlp.up_proj.weight is missing"),
        ({"layers.2.input_layernorm.weight": np.ones(40, np.float32)}, "layers.2.input_layernorm.weight has no place"),
        ({"markov_head.markov_w2.weight": np.ones((263, 16), np.float32)}, "markov_w2.weight has another shape"),
        ({"confidence_head.proj.weight": np.ones((1, 40), np.float32)}, r"found \(1, 40\); expected \(1, 56\)"),
        ({"confidence_head.proj.bias": None}, "confidence_head.proj.bias is missing"),
    ],
)
def test_tensors_that_do_not_fit(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableDrafter, match=words):
        load(dspark_directory(tmp_path, **changes))


@pytest.mark.parametrize(
    ("ids", "vocab", "words"),
    [
        ([*range(23), 264], 264, "token 264 for draft id 23"),
        ([*range(23), 22], 264, "token 22 2 times"),
        ([*range(23), 270], 280, "d2t; found token 270; expected 0 to 263"),
    ],
)
def test_maps_that_do_not_fit(ids: list[int], vocab: int, words: str, tmp_path: Path) -> None:
    config = LIQUID | {"draft_vocab_size": 24, "vocab_size": vocab}
    with pytest.raises(UnusableDrafter, match=words):
        load(dspark_directory(tmp_path, config=config, d2t=np.array(ids) - np.arange(24)))


def test_a_reduced_vocabulary_without_its_map(tmp_path: Path) -> None:
    with pytest.raises(UnusableDrafter, match="map of the draft vocabulary is missing"):
        load(dspark_directory(tmp_path, config=LIQUID | {"draft_vocab_size": 24}))
