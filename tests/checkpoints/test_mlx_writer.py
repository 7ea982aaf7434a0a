"""A quantized directory is read back as its source, rounded once; what cannot be packed stays; no half targets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.checkpoints.gguf_files import write_gguf
from tests.checkpoints.hf_files import write_directory
from tests.checkpoints.mlx_files import (
    BASE,
    EXPERTS,
    FORM,
    GATE_FORM,
    HIDDEN,
    Arrays,
    draw,
    expected,
    mlx_config,
    mlx_weights,
    moe_weights,
    rounded,
    write_mlx,
)
from tfjax.checkpoints import CheckpointError, open_checkpoint, open_tensors
from tfjax.checkpoints.affine import AffineForm
from tfjax.checkpoints.mlx_rules import Forms
from tfjax.checkpoints.mlx_writer import Written, quantize_directory
from tfjax.checkpoints.safetensors_files import SafetensorsFiles

FORMS = Forms(matrix=FORM, router=GATE_FORM, embedding=FORM)
MOE = {**BASE, "architectures": ["Lfm2MoeForCausalLM"], "torch_dtype": "bfloat16"}
STORED = ("U32", "BF16", "F16", "F32", "I64")


def silent(phase: str, fraction: float) -> None:
    del phase, fraction


def run(
    tmp_path: Path,
    *,
    config: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[Any]] | None = None,
    forms: Forms = FORMS,
) -> Written:
    """Quantizes tmp_path/source, by default the small mixture, into tmp_path/target."""
    source = write_directory(tmp_path / "source", config=config or MOE, tensors=tensors or moe_weights())
    return quantize_directory(source, tmp_path / "target", forms, silent)


def stated(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "target" / "config.json").read_text())
    return found


def test_what_is_read_back(tmp_path: Path) -> None:
    run(tmp_path)
    checkpoint = open_checkpoint(tmp_path / "target")
    assert sorted(checkpoint.tensors.infos) == sorted(expected())
    for name, values in expected().items():
        found = checkpoint.tensors.read(name)
        np.testing.assert_array_equal(found, values, err_msg=name)
    assert checkpoint.config == MOE


def test_files_are_those_of_mlx(tmp_path: Path) -> None:
    """Names, stacks, shapes, types and bits, as mlx-lm's own conversion lays them out."""
    run(tmp_path)
    wanted, files = mlx_weights(), SafetensorsFiles(tmp_path / "target")
    assert sorted(files.infos) == sorted(wanted)
    for name, values in wanted.items():
        found = files.read(name, (), STORED)
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found.view(np.uint8), np.ascontiguousarray(values).view(np.uint8), err_msg=name)


def test_config_says_how(tmp_path: Path) -> None:
    run(tmp_path)
    found = stated(tmp_path)
    wanted = mlx_config()["quantization"]
    assert found["quantization"] == found["quantization_config"] == wanted
    assert {key: value for key, value in found.items() if not key.startswith("quantization")} == MOE


def test_roles_have_forms_of_their_own(tmp_path: Path) -> None:
    forms = Forms(matrix=AffineForm(3, 32), router=None, embedding=AffineForm(6, 32))
    run(tmp_path, forms=forms)
    assert stated(tmp_path)["quantization"] == {
        "group_size": 32,
        "bits": 3,
        "mode": "affine",
        "model.embed_tokens": {"group_size": 32, "bits": 6},
    }
    tensors, source = open_checkpoint(tmp_path / "target").tensors, moe_weights()
    gate, embedding = "model.layers.1.feed_forward.gate.weight", "model.embed_tokens.weight"
    np.testing.assert_array_equal(tensors.read(gate), source[gate])
    np.testing.assert_array_equal(tensors.read(embedding), rounded(source[embedding], AffineForm(6, 32)))


@pytest.mark.parametrize("layout", ["packed", "prefix"])
def test_sources_in_other_layouts_give_the_same_files(tmp_path: Path, layout: str) -> None:
    run(tmp_path / "a")
    source = moe_weights()
    if layout == "prefix":
        tensors = {name.replace("model.", "language_model.model."): array for name, array in source.items()}
    else:
        at = "model.layers.1.feed_forward.experts"
        tensors = {name: array for name, array in source.items() if ".experts." not in name}
        pairs = [(source[f"{at}.{e}.w1.weight"], source[f"{at}.{e}.w3.weight"]) for e in range(EXPERTS)]
        tensors[f"{at}.gate_up_proj"] = np.stack([np.concatenate(pair) for pair in pairs])
        tensors[f"{at}.down_proj"] = np.stack([source[f"{at}.{e}.w2.weight"] for e in range(EXPERTS)])
    run(tmp_path / "b", tensors=tensors)
    first, second = ((tmp_path / side / "target" / "model.safetensors").read_bytes() for side in "ab")
    assert first == second


def test_a_llama_keeps_its_names(tmp_path: Path) -> None:
    shapes = {
        "model.embed_tokens.weight": (6, 64),
        "lm_head.weight": (6, 64),
        "model.layers.0.mlp.gate_proj.weight": (64, 64),
        "model.layers.0.mlp.gate_proj.bias": (64,),
        "model.norm.weight": (64,),
    }
    source = {name: draw(name, shape, np.float16) for name, shape in shapes.items()}
    run(tmp_path, config={**BASE, "architectures": ["LlamaForCausalLM"]}, tensors=source)
    tensors = open_checkpoint(tmp_path / "target").tensors
    assert sorted(tensors.infos) == sorted(source)
    for name, values in source.items():
        packed = values.ndim == 2
        np.testing.assert_array_equal(tensors.read(name), rounded(values) if packed else values)
    infos = SafetensorsFiles(tmp_path / "target").infos
    assert infos["lm_head.scales"].dtype == "F16"


def test_a_drafter_whose_config_is_nobody_elses(tmp_path: Path) -> None:
    shapes = {"fc.weight": (64, 192), "markov_head.markov_w1.weight": (32, 64), "confidence_head.proj.weight": (1, 128)}
    source: Arrays = {name: draw(name, shape) for name, shape in shapes.items()}
    source["d2t"] = np.arange(32)
    config = {"architectures": ["Lfm2DSparkDraftModel"], "dflash_config": {"mask_token_id": 3}}
    written = run(tmp_path, config=config, tensors=source, forms=Forms(GATE_FORM, GATE_FORM, GATE_FORM))
    tensors = open_tensors(tmp_path / "target", stated(tmp_path), "Lfm2DSparkDraftModel")
    np.testing.assert_array_equal(tensors.read("fc.weight"), rounded(source["fc.weight"], GATE_FORM))
    for name in ("confidence_head.proj.weight", "d2t"):
        np.testing.assert_array_equal(tensors.read(name), source[name])
    assert written.packed == 64 * 192 + 32 * 64
    assert stated(tmp_path)["dflash_config"] == {"mask_token_id": 3}


def test_rows_that_groups_do_not_fill_stay_and_are_said(tmp_path: Path) -> None:
    module = "model.layers.1.self_attn.q_proj"
    source = moe_weights() | {f"{module}.weight": draw("odd", (HIDDEN, 96))}
    written = run(tmp_path, tensors=source)
    assert written.kept == {module: 96}
    assert stated(tmp_path)["quantization"][module] is False
    np.testing.assert_array_equal(
        open_checkpoint(tmp_path / "target").tensors.read(f"{module}.weight"), source[f"{module}.weight"]
    )


def test_sums(tmp_path: Path) -> None:
    written = run(tmp_path)
    infos = SafetensorsFiles(tmp_path / "target").infos
    source = moe_weights()
    assert written.weights == sum(array.size for array in source.values())
    assert written.bytes_before == sum(array.nbytes for array in source.values())
    assert written.bytes_after == sum(info.stored_bytes for info in infos.values())
    assert 4.5 < written.bits_per_weight < 5.5


def test_other_files_are_copied_and_weights_and_code_are_not(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "source", config=MOE, tensors=moe_weights())
    blob = tmp_path / "blob"
    blob.write_text("linked")
    (source / "tokenizer.json").symlink_to(blob)
    left = (
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "pytorch_model.bin",
        "code.py",
        ".hidden",
    )
    for name in ("chat_template.jinja", "LICENSE", *left):
        (source / name).write_text(name)
    (source / "folder").mkdir()
    quantize_directory(source, tmp_path / "target", FORMS, silent)
    found = {entry.name for entry in (tmp_path / "target").iterdir()}
    assert found == {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "LICENSE"}
    assert (tmp_path / "target" / "tokenizer.json").read_text() == "linked"
    assert not (tmp_path / "target" / "tokenizer.json").is_symlink()


def test_progress_grows_to_one(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    source = write_directory(tmp_path / "source", config=MOE, tensors=moe_weights())
    quantize_directory(source, tmp_path / "target", FORMS, lambda phase, share: told.append((phase, share)))
    shares = [share for _, share in told]
    assert {phase for phase, _ in told} == {"quantizing"}
    assert len(shares) == len(moe_weights())
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def refused(tmp_path: Path, source: Path, message: str, forms: Forms = FORMS) -> None:
    with pytest.raises(CheckpointError, match=message):
        quantize_directory(source, tmp_path / "target", forms, silent)
    assert not (tmp_path / "target").exists()
    assert not list(tmp_path.glob(".target*"))


def test_existing_target(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "source", config=MOE, tensors=moe_weights())
    (tmp_path / "target").mkdir()
    with pytest.raises(CheckpointError, match="target: exists already; expected a new directory"):
        quantize_directory(source, tmp_path / "target", FORMS, silent)
    assert not list((tmp_path / "target").iterdir())


def test_quantized_source(tmp_path: Path) -> None:
    refused(tmp_path, write_mlx(tmp_path / "source"), r"config\.json: quantized already \(quantization\)")


def test_gguf_source(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    refused(tmp_path, path, r"m\.gguf: nothing to quantize; .*GGUF file is quantized already")


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    tensors = moe_weights()
    name = "model.layers.1.self_attn.q_proj.weight"
    tensors[name][3, 3] = np.inf
    source = write_directory(tmp_path / "source", config=MOE, tensors=tensors)
    refused(tmp_path, source, rf"cannot be quantized; tensor {name}; found values that are not finite")


def test_nothing_that_groups_fill(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "source", config=MOE, tensors=moe_weights())
    forms = Forms(AffineForm(4, 128), None, None)
    tensors = {name: array for name, array in moe_weights().items() if "feed_forward.w2" not in name}
    source = write_directory(tmp_path / "source", config=MOE, tensors=tensors)
    refused(tmp_path, source, "nothing to quantize; expected a weight whose rows are filled by groups of 128", forms)


def test_experts_of_different_types(tmp_path: Path) -> None:
    name = "model.layers.1.feed_forward.experts.1.w1.weight"
    tensors = moe_weights() | {name: moe_weights()[name].astype(np.float32)}
    source = write_directory(tmp_path / "source", config=MOE, tensors=tensors)
    refused(tmp_path, source, r"experts differ; tensor .*experts\.\d\.w1\.weight")


def test_weights_of_another_type(tmp_path: Path) -> None:
    tensors = moe_weights() | {"model.layers.1.self_attn.q_proj.weight": np.zeros((64, 64), np.int8)}
    source = write_directory(tmp_path / "source", config=MOE, tensors=tensors)
    refused(tmp_path, source, r"type is not supported; tensor .*q_proj\.weight; found I8; expected F32, F16, BF16")


def test_interrupted(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "source", config=MOE, tensors=moe_weights())

    def stop(phase: str, fraction: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_directory(source, tmp_path / "target", FORMS, stop)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["source"]
