"""Every layout of a directory gives the published names and values; reading a piece reads no more than the piece."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.checkpoints.hf_files import write_directory
from tests.checkpoints.mlx_files import (
    BASE,
    EXPERTS,
    FORM,
    HIDDEN,
    INNER,
    Arrays,
    draw,
    expected,
    mlx_config,
    mlx_weights,
    moe_weights,
    packed,
    rounded,
    write_mlx,
)
from tfjax.checkpoints import CheckpointError, PackedSource, TensorSource, open_checkpoint
from tfjax.checkpoints.affine import BITS, GROUP_SIZES, AffineForm, dequantize
from tfjax.checkpoints.safetensors_files import SafetensorsFiles

MOE = {**BASE, "architectures": ["Lfm2MoeForCausalLM"]}
FEED_FORWARD = "model.layers.1.feed_forward"


def assert_holds(tensors: TensorSource, wanted: Mapping[str, Any]) -> None:
    assert sorted(tensors.infos) == sorted(wanted)
    for name, values in wanted.items():
        found = tensors.read(name)
        assert tensors.infos[name].shape == found.shape == values.shape, name
        np.testing.assert_array_equal(found.astype(np.float32), values.astype(np.float32), err_msg=name)


def renamed(old: str, new: str) -> Arrays:
    return {name.replace(old, new): array for name, array in moe_weights().items()}


def joined_experts(suffix: str = "") -> Arrays:
    """Experts as transformers holds them in memory: gate and up in one tensor."""
    source = moe_weights()
    arrays = {name: array for name, array in source.items() if ".experts." not in name}
    experts = [
        [source[f"{FEED_FORWARD}.experts.{expert}.{matrix}.weight"] for matrix in ("w1", "w3", "w2")]
        for expert in range(EXPERTS)
    ]
    arrays[f"{FEED_FORWARD}.experts.gate_up_proj{suffix}"] = np.stack([np.concatenate(each[:2]) for each in experts])
    arrays[f"{FEED_FORWARD}.experts.down_proj{suffix}"] = np.stack([each[2] for each in experts])
    return arrays


@pytest.mark.parametrize(
    "arrays",
    [
        moe_weights(),
        joined_experts(),
        joined_experts(".weight"),
        renamed("model.", "language_model.model."),
        renamed("model.", "model.language_model."),
        renamed("model.", "language_model."),
        renamed("model.", ""),
        renamed(".w1.", ".gate_proj."),
        {
            name: np.ascontiguousarray(array.swapaxes(1, 2)) if "conv.conv" in name else array
            for name, array in moe_weights().items()
        },
    ],
    ids=[
        "published",
        "packed",
        "packed-weight",
        "language-model",
        "model-language",
        "bare-language",
        "bare",
        "gate-proj",
        "turned",
    ],
)
def test_plain_layouts_are_one_set_of_tensors(tmp_path: Path, arrays: Arrays) -> None:
    assert_holds(open_checkpoint(write_directory(tmp_path, config=MOE, tensors=arrays)).tensors, moe_weights())


@pytest.mark.parametrize("stacked", [True, False], ids=["stacked", "per-expert"])
@pytest.mark.parametrize("prefix", ["", "language_model."])
def test_mlx_layouts_are_one_set_of_tensors(tmp_path: Path, stacked: bool, prefix: str) -> None:
    directory = write_mlx(
        tmp_path, config=mlx_config(prefix=prefix), tensors=mlx_weights(stacked=stacked, prefix=prefix)
    )
    assert_holds(open_checkpoint(directory).tensors, expected())


def test_quantized_packed_experts(tmp_path: Path) -> None:
    arrays = mlx_weights()
    kept = {name: array for name, array in arrays.items() if "gate_proj" not in name and ".switch_mlp.up" not in name}
    stack = joined_experts()[f"{FEED_FORWARD}.experts.gate_up_proj"]
    config = mlx_config()
    kept |= packed(f"{FEED_FORWARD}.experts.gate_up_proj", stack)
    kept |= {name: array for name, array in arrays.items() if name.startswith("model.layers.0.feed_forward.gate_proj")}
    assert_holds(open_checkpoint(write_mlx(tmp_path, config=config, tensors=kept)).tensors, expected())


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", GROUP_SIZES[:2])
def test_every_form(tmp_path: Path, bits: int, group_size: int) -> None:
    form = AffineForm(bits, group_size)
    config = mlx_config(bits=bits, group_size=group_size)
    tensors = open_checkpoint(write_mlx(tmp_path, config=config, tensors=mlx_weights(form=form))).tensors
    assert_holds(tensors, expected(form))


@pytest.mark.parametrize("override", ["switch_mlp.gate_proj", "experts.w1", "experts.gate_proj"])
@pytest.mark.parametrize("stacked", [True, False])
def test_override_of_experts_in_any_spelling(tmp_path: Path, override: str, stacked: bool) -> None:
    form, arrays = AffineForm(8, 32), mlx_weights(stacked=stacked)
    source = moe_weights()
    each = {e: source[f"{FEED_FORWARD}.experts.{e}.w1.weight"] for e in range(EXPERTS)}
    if stacked:
        arrays |= packed(f"{FEED_FORWARD}.switch_mlp.gate_proj", np.stack(list(each.values())), form)
    else:
        for e, weight in each.items():
            arrays |= packed(f"{FEED_FORWARD}.experts.{e}.w1", weight, form)
    config = mlx_config(**{f"{FEED_FORWARD}.{override}": {"bits": 8, "group_size": 32}})
    wanted = expected() | {f"{FEED_FORWARD}.experts.{e}.w1.weight": rounded(w, form) for e, w in each.items()}
    assert_holds(open_checkpoint(write_mlx(tmp_path, config=config, tensors=arrays)).tensors, wanted)


def test_one_expert_may_have_a_form_of_its_own(tmp_path: Path) -> None:
    name, form = f"{FEED_FORWARD}.experts.1.w1", AffineForm(8, 32)
    weight = moe_weights()[f"{name}.weight"]
    arrays = mlx_weights(stacked=False) | packed(name, weight, form)
    config = mlx_config(**{name: {"bits": 8, "group_size": 32}})
    wanted = expected() | {f"{name}.weight": rounded(weight, form)}
    assert_holds(open_checkpoint(write_mlx(tmp_path, config=config, tensors=arrays)).tensors, wanted)


def test_module_that_is_listed_as_not_quantized(tmp_path: Path) -> None:
    module = "model.layers.1.self_attn.q_proj"
    arrays = mlx_weights()
    for side in ("scales", "biases"):
        del arrays[f"{module}.{side}"]
    arrays[f"{module}.weight"] = moe_weights()[f"{module}.weight"]
    tensors = open_checkpoint(write_mlx(tmp_path, config=mlx_config(**{module: False}), tensors=arrays)).tensors
    assert_holds(tensors, expected() | {f"{module}.weight": moe_weights()[f"{module}.weight"]})


def test_llama_with_a_head_and_an_embedding_of_its_own(tmp_path: Path) -> None:
    shapes = {
        "model.embed_tokens": (6, 64),
        "lm_head": (6, 64),
        "model.layers.0.self_attn.q_proj": (64, 64),
        "model.layers.0.mlp.down_proj": (64, 128),
    }
    source = {module: draw(module, shape) for module, shape in shapes.items()}
    norm = {"model.norm.weight": draw("n", (64,))}
    arrays = norm | {name: array for module, weight in source.items() for name, array in packed(module, weight).items()}
    config = {**BASE, "architectures": ["LlamaForCausalLM"], "quantization": {"group_size": 64, "bits": 4}}
    wanted = norm | {f"{module}.weight": rounded(weight) for module, weight in source.items()}
    tensors = open_checkpoint(write_directory(tmp_path, config=config, tensors=arrays)).tensors
    assert_holds(tensors, wanted)


def test_names_of_drafters_stay(tmp_path: Path) -> None:
    arrays = {"norm.weight": draw("a", (64,)), "layers.0.mlp.gate_proj.weight": draw("b", (64, 64))}
    config = {**BASE, "architectures": ["Lfm2DSparkDraftModel"]}
    assert_holds(open_checkpoint(write_directory(tmp_path, config=config, tensors=arrays)).tensors, arrays)


def test_expert_bias_stays_float32(tmp_path: Path) -> None:
    tensors = open_checkpoint(write_mlx(tmp_path)).tensors
    assert tensors.read(f"{FEED_FORWARD}.expert_bias").dtype == np.float32
    assert tensors.read("model.embedding_norm.weight").dtype == ml_dtypes.bfloat16


def test_config_is_that_of_the_dequantized_model(tmp_path: Path) -> None:
    assert open_checkpoint(write_mlx(tmp_path)).config == MOE


def test_infos_of_pieces(tmp_path: Path) -> None:
    infos = open_checkpoint(write_mlx(tmp_path)).tensors.infos
    info = infos[f"{FEED_FORWARD}.experts.2.w2.weight"]
    bits = FORM.bits + 32 / FORM.group_size
    assert (info.shape, info.dtype, info.stored_bytes) == ((HIDDEN, INNER), "AFFINE4", HIDDEN * INNER * bits / 8)
    assert infos[f"{FEED_FORWARD}.gate.weight"].dtype == "AFFINE8"
    whole = SafetensorsFiles(tmp_path).infos
    assert sum(info.stored_bytes for info in infos.values()) == sum(info.stored_bytes for info in whole.values())


def test_a_piece_of_a_stack_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = open_checkpoint(write_mlx(tmp_path)).tensors
    read: list[int] = []
    plain = SafetensorsFiles.read

    def counted(self: SafetensorsFiles, *args: Any) -> Any:
        values = plain(self, *args)
        read.append(values.nbytes)
        return values

    monkeypatch.setattr(SafetensorsFiles, "read", counted)
    name = f"{FEED_FORWARD}.experts.1.w3.weight"
    tensors.read(name)
    assert sum(read) == tensors.infos[name].stored_bytes


def test_two_tensors_for_one_are_refused(tmp_path: Path) -> None:
    arrays = moe_weights()
    arrays[f"{FEED_FORWARD}.experts.1.gate_proj.weight"] = arrays[f"{FEED_FORWARD}.experts.1.w1.weight"]
    directory = write_directory(tmp_path, config=MOE, tensors=arrays)
    with pytest.raises(CheckpointError, match=r"two tensors for one; tensor .*experts\.1\.w1\.weight; found .* and .*"):
        open_checkpoint(directory)


def test_packed_experts_with_an_odd_row(tmp_path: Path) -> None:
    name = f"{FEED_FORWARD}.experts.gate_up_proj"
    arrays = joined_experts() | {name: np.zeros((EXPERTS, 2 * INNER + 1, HIDDEN), np.float32)}
    with pytest.raises(CheckpointError, match=r"gate_up_proj; found \(3, 129, 64\); expected as many gate as up rows"):
        open_checkpoint(write_directory(tmp_path, config=MOE, tensors=arrays))


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = open_checkpoint(write_mlx(tmp_path)).tensors
    with pytest.raises(CheckpointError, match=r"tensor is missing; tensor lm_head\.weight"):
        tensors.read("lm_head.weight")


@pytest.mark.parametrize("stacked", [True, False])
def test_packed_parts_stand_for_what_is_read(tmp_path: Path, stacked: bool) -> None:
    """Of every quantized matrix, an expert of a stack too, with its own form; of nothing else."""
    tensors = open_checkpoint(write_mlx(tmp_path, tensors=mlx_weights(stacked=stacked))).tensors
    assert isinstance(tensors, PackedSource)
    for name in tensors.infos:
        found = tensors.packed(name)
        assert (found is None) == (not tensors.infos[name].dtype.startswith("AFFINE")), name
        if found is not None:
            parts, form = found
            assert form.bits == (8 if name.endswith("feed_forward.gate.weight") else 4)
            np.testing.assert_array_equal(dequantize(parts, form), tensors.read(name), err_msg=name)
    with pytest.raises(CheckpointError, match="tensor is missing"):
        tensors.packed("model.layers.9.nothing.weight")
