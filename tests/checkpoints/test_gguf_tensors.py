"""Tensors of a GGUF file come out as the gguf package dequantizes them, under Hugging Face names, in its row order."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from numpy.typing import NDArray

from tests.checkpoints.gguf_files import FF, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, SHAPES, VOCAB, values, write_gguf
from tfjax.checkpoints import CheckpointError, PackedSource, open_checkpoint
from tfjax.checkpoints.affine import AffineForm, Packed, dequantize
from tfjax.checkpoints.gguf_names import hf_name
from tfjax.checkpoints.gguf_reader import BoundedReader
from tfjax.checkpoints.gguf_tensors import SUPPORTED_TYPES, half_split_rows

UP = "model.layers.0.mlp.up_proj.weight"


def random_blocks(shape: tuple[int, ...], kind: GGMLQuantizationType) -> NDArray[np.uint8]:
    """Valid blocks of any type: random codes, with the half-precision scales made finite."""
    row_shape = quants.quant_shape_to_byte_shape(shape, kind)
    blocks = np.random.default_rng(7).integers(0, 256, row_shape, dtype=np.uint8)
    # 0x3F is no exponent of an infinity or NaN in either byte of a float16.
    return np.asarray(blocks & 0x3F, np.uint8)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"])
def test_block_types_equal_the_gguf_package(tmp_path: Path, name: str) -> None:
    kind = GGMLQuantizationType[name]
    blocks = random_blocks((FF, HIDDEN), kind)
    path = write_gguf(tmp_path / "m.gguf", quantized={"blk.0.ffn_up.weight": (blocks, kind)})
    tensors = open_checkpoint(path).tensors
    read = tensors.read(UP)
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, quants.dequantize(blocks, kind))
    assert np.isfinite(read).all()
    assert len(np.unique(read)) > 10
    info = tensors.infos[UP]
    block, size = GGML_QUANT_SIZES[kind]
    assert (info.shape, info.dtype, info.stored_bytes) == ((FF, HIDDEN), name, FF * HIDDEN * size // block)


@pytest.mark.parametrize("name", ["F16", "BF16", "F32"])
def test_plain_types_keep_their_type_and_bits(tmp_path: Path, name: str) -> None:
    dtype = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32}[name]
    wanted = values("blk.0.ffn_up.weight").astype(dtype)
    raw = wanted.view(np.uint8) if name == "BF16" else wanted
    if name == "BF16":
        path = write_gguf(tmp_path / "m.gguf", quantized={"blk.0.ffn_up.weight": (raw, GGMLQuantizationType.BF16)})
    else:
        path = write_gguf(tmp_path / "m.gguf", tensors={"blk.0.ffn_up.weight": raw})
    read = open_checkpoint(path).tensors.read(UP)
    assert read.dtype == dtype
    np.testing.assert_array_equal(read.view(np.uint8), wanted.view(np.uint8))


def test_all_supported_types_are_tested_here() -> None:
    assert set(SUPPORTED_TYPES) == {"Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K", "F16", "BF16", "F32"}


def test_names_and_shapes(tmp_path: Path) -> None:
    infos = open_checkpoint(write_gguf(tmp_path / "m.gguf")).tensors.infos
    shapes = {name: info.shape for name, info in infos.items()}
    layer = "model.layers.0."
    assert shapes == {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        layer + "input_layernorm.weight": (HIDDEN,),
        layer + "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
        layer + "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        layer + "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        layer + "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        layer + "post_attention_layernorm.weight": (HIDDEN,),
        layer + "mlp.gate_proj.weight": (FF, HIDDEN),
        layer + "mlp.up_proj.weight": (FF, HIDDEN),
        layer + "mlp.down_proj.weight": (HIDDEN, FF),
    }


def test_only_rows_of_q_and_k_are_reordered(tmp_path: Path) -> None:
    tensors = open_checkpoint(write_gguf(tmp_path / "m.gguf")).tensors
    names = {hf_name(name): values(name) for name in SHAPES}
    for name, stored in names.items():
        assert name is not None
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
        wanted = stored
        if heads is not None:
            # Row r of a head is: first of pair r in the first half, second of pair r - H/2 in the second half.
            order = [*range(0, HEAD_DIM, 2), *range(1, HEAD_DIM, 2)]
            rows = [head * HEAD_DIM + row for head in range(heads) for row in order]
            wanted = stored[rows]
        np.testing.assert_array_equal(tensors.read(name), wanted, err_msg=name)


def test_half_split_rotation_of_reordered_rows_equals_interleaved_rotation() -> None:
    """The reason for the reordering: both conventions give the same rotated pairs."""
    stored = np.arange(2 * 8, dtype=np.float64) + 1
    angle = np.linspace(0.1, 1.5, 4)
    cos, sin = np.cos(angle), np.sin(angle)
    pairs = stored.reshape(2, 4, 2)
    interleaved = np.stack(
        [pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin], axis=-1
    ).reshape(-1)
    halves = half_split_rows(stored, 2).reshape(2, 2, 4)
    rotated = np.stack(
        [halves[:, 0] * cos - halves[:, 1] * sin, halves[:, 1] * cos + halves[:, 0] * sin], axis=1
    ).reshape(-1)
    np.testing.assert_allclose(rotated, half_split_rows(interleaved, 2))


def test_biases_of_q_and_k_are_reordered_too(tmp_path: Path) -> None:
    bias = np.arange(HIDDEN, dtype=np.float32)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors={"blk.0.attn_q.bias": bias}))
    read = checkpoint.tensors.read("model.layers.0.self_attn.q_proj.bias")
    np.testing.assert_array_equal(read[:3], [0, 2, 4])
    np.testing.assert_array_equal(read[HEAD_DIM // 2 : HEAD_DIM // 2 + 2], [1, 3])
    assert checkpoint.config["attention_bias"] is True


def test_own_head_makes_the_model_untied(tmp_path: Path) -> None:
    head = values("output.weight", (VOCAB, HIDDEN))
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors={"output.weight": head}))
    np.testing.assert_array_equal(checkpoint.tensors.read("lm_head.weight"), head)
    assert checkpoint.config["tie_word_embeddings"] is False


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = open_checkpoint(write_gguf(tmp_path / "m.gguf")).tensors
    with pytest.raises(CheckpointError, match=r"m\.gguf: tensor is missing; tensor lm_head\.weight"):
        tensors.read("lm_head.weight")


def test_rows_that_do_not_fit_the_heads_are_refused(tmp_path: Path) -> None:
    odd = values("blk.0.attn_q.weight", (HIDDEN - 1, HIDDEN))
    tensors = open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors={"blk.0.attn_q.weight": odd})).tensors
    with pytest.raises(CheckpointError, match=r"q_proj\.weight; found 255 rows; expected a multiple of 8"):
        tensors.read("model.layers.0.self_attn.q_proj.weight")


def test_unsupported_type_is_named(tmp_path: Path) -> None:
    kind = GGMLQuantizationType.Q5_0
    blocks = random_blocks((FF, HIDDEN), kind)
    path = write_gguf(tmp_path / "m.gguf", quantized={"blk.0.ffn_up.weight": (blocks, kind)})
    with pytest.raises(CheckpointError, match=r"blk\.0\.ffn_up\.weight; found Q5_0; expected F32, .*Q6_K"):
        open_checkpoint(path)


def test_unknown_tensor_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", tensors={"blk.0.attn_q_norm.weight": values("output_norm.weight")})
    with pytest.raises(CheckpointError, match=r"unknown tensor; tensor blk\.0\.attn_q_norm\.weight"):
        open_checkpoint(path)


def test_file_that_shrank_since_its_index_was_cached(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    tensors = open_checkpoint(path).tensors
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(CheckpointError, match=r"cannot be read; tensor blk\.0\.ffn_down\.weight"):
        tensors.read("model.layers.0.mlp.down_proj.weight")


def packed(path: Path, name: str) -> tuple[Packed, AffineForm] | None:
    tensors = open_checkpoint(path).tensors
    assert isinstance(tensors, PackedSource)
    return tensors.packed(name)


@pytest.mark.parametrize("name", ["attn_q", "attn_k", "attn_v"])
def test_packed_rows_lie_in_the_order_of_read_ones(tmp_path: Path, name: str) -> None:
    """Rows of q and k are reordered, those of v are not; the rows are told apart by their scales alone too."""
    kind, stored = GGMLQuantizationType.Q4_1, f"blk.0.{name}.weight"
    blocks = quants.quantize(values(stored), kind)
    path = write_gguf(tmp_path / "m.gguf", quantized={stored: (blocks, kind)})
    found = packed(path, f"model.layers.0.self_attn.{name[-1]}_proj.weight")
    assert found is not None
    np.testing.assert_array_equal(
        dequantize(*found), open_checkpoint(path).tensors.read(f"model.layers.0.self_attn.{name[-1]}_proj.weight")
    )
    in_file = np.ascontiguousarray(blocks[:, :2]).view(np.float16)[:, 0]
    assert np.array_equal(found[0].scales[:, 0], in_file) == (name == "attn_v")
    assert sorted(found[0].scales[:, 0]) == sorted(in_file)


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "F16"])
def test_other_types_are_not_packed(tmp_path: Path, name: str) -> None:
    kind = GGMLQuantizationType[name]
    blocks = values("blk.0.ffn_up.weight").astype(np.float16).view(np.uint8)
    if name != "F16":
        blocks = random_blocks((FF, HIDDEN), kind)
    path = write_gguf(tmp_path / "m.gguf", quantized={"blk.0.ffn_up.weight": (blocks, kind)})
    assert packed(path, UP) is None
    assert open_checkpoint(path).tensors.infos[UP].packed_type == ""


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (
            600.0,
            r"Q8_0 that cannot stay packed; tensor blk\.0\.ffn_up\.weight; found scales up to 600\.0.*--weights dense",
        ),
        (np.inf, r"not finite; tensor blk\.0\.ffn_up\.weight; found inf in block \[3, 2\]; expected numbers. Fetch"),
    ],
)
def test_scales_that_no_packed_form_holds_are_refused(tmp_path: Path, scale: float, words: str) -> None:
    kind = GGMLQuantizationType.Q8_0
    blocks = quants.quantize(values("blk.0.ffn_up.weight"), kind)
    blocks[3, 2 * 34 : 2 * 34 + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    path = write_gguf(tmp_path / "m.gguf", quantized={"blk.0.ffn_up.weight": (blocks, kind)})
    with pytest.raises(CheckpointError, match=words):
        packed(path, UP)


def test_a_vector_is_never_packed(tmp_path: Path) -> None:
    """Its blocks are no rows, which q and k would have reordered."""
    kind = GGMLQuantizationType.Q8_0
    blocks = quants.quantize(np.ones(HIDDEN, np.float32), kind)
    path = write_gguf(tmp_path / "m.gguf", quantized={"blk.0.ffn_norm.weight": (blocks, kind)})
    assert packed(path, "model.layers.0.post_attention_layernorm.weight") is None


def test_rows_that_do_not_fit_the_heads_are_refused_packed_too(tmp_path: Path) -> None:
    kind = GGMLQuantizationType.Q4_0
    blocks = quants.quantize(values("blk.0.attn_q.weight", (HIDDEN - 1, HIDDEN)), kind)
    path = write_gguf(tmp_path / "m.gguf", quantized={"blk.0.attn_q.weight": (blocks, kind)})
    with pytest.raises(CheckpointError, match=r"m\.gguf: wrong shape; .*found 255 rows; expected a multiple of 8"):
        packed(path, "model.layers.0.self_attn.q_proj.weight")


def test_a_missing_tensor_is_named_where_it_is_asked_for_packed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tensor is missing; tensor lm_head\.weight"):
        packed(write_gguf(tmp_path / "m.gguf"), "lm_head.weight")


@pytest.mark.weights
def test_default_model_is_read_whole(smollm2_gguf: Path) -> None:
    checkpoint = open_checkpoint(smollm2_gguf)
    reader = BoundedReader(smollm2_gguf)
    assert len(checkpoint.tensors.infos) == len(reader.tensors)
    first = next(tensor for tensor in reader.tensors if tensor.name == "blk.3.ffn_down.weight")
    wanted = quants.dequantize(first.data, first.tensor_type)
    np.testing.assert_array_equal(checkpoint.tensors.read("model.layers.3.mlp.down_proj.weight"), wanted)
