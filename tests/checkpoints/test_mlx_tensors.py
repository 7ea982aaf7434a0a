"""Directories whose packed weights are incomplete, damaged or of another form than config.json says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints.mlx_files import EXPERTS, HIDDEN, INNER, Arrays, mlx_config, mlx_weights, moe_weights, write_mlx
from tfjax.checkpoints import CheckpointError, open_checkpoint

Q = "model.layers.1.self_attn.q_proj"
UP = "model.layers.1.feed_forward.switch_mlp.up_proj"
GATE = "model.layers.1.feed_forward.gate"


def refused(tmp_path: Path, message: str, *, tensors: Arrays | None = None, **entries: Any) -> None:
    directory = write_mlx(tmp_path, config=mlx_config(**entries), tensors=tensors)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(directory)


def without(*names: str) -> Arrays:
    return {name: array for name, array in mlx_weights().items() if name not in names}


@pytest.mark.parametrize("side", ["scales", "biases"])
@pytest.mark.parametrize(("module", "shape"), [(Q, (HIDDEN, 1)), (UP, (EXPERTS, INNER, 1))])
def test_missing_sides_are_named_with_their_shape(
    tmp_path: Path, side: str, module: str, shape: tuple[int, ...]
) -> None:
    expected = ", ".join(map(str, shape))
    message = rf"model\.safetensors: {side} are missing; tensor {module}\.{side}; expected shape \({expected}\)"
    refused(tmp_path, message, tensors=without(f"{module}.{side}"))


def test_wrong_group_size(tmp_path: Path) -> None:
    message = r"found \(\d+, 1\), which would be 8 bits in groups of 32; expected \(\d+, 2\) for 4 bits in groups of 32"
    refused(tmp_path, message, group_size=32)


def test_wrong_bits(tmp_path: Path) -> None:
    message = (
        r"no packed weight of the form.*found U32 \(\d+, 8\); expected U32 with whole groups of 64 columns of 8 bits"
    )
    refused(tmp_path, message, bits=8)


def test_bits_that_fill_other_groups(tmp_path: Path) -> None:
    message = r"which would be 4 bits in groups of 64; expected \(\d+, \d\) for 2 bits in groups of 64"
    refused(tmp_path, message, bits=2)


def test_gate_without_its_entry(tmp_path: Path) -> None:
    message = rf"{GATE}\.scales; found \(3, 1\), which would be 8 bits .*; expected \(3, 2\) for 4 bits"
    refused(tmp_path, message, **{GATE: None})


def test_entry_of_no_module(tmp_path: Path) -> None:
    other = "model.layers.9.feed_forward.gate"
    refused(tmp_path, rf"config\.json: quantization of a module that does not exist: {other}", **{other: {"bits": 8}})


def test_scales_of_a_module_that_is_listed_as_plain(tmp_path: Path) -> None:
    refused(tmp_path, rf"says is not quantized; tensor {Q}\.scales; expected no such tensor", **{Q: False})


def test_plain_module_that_is_listed_as_quantized(tmp_path: Path) -> None:
    tensors = without(f"{Q}.scales", f"{Q}.biases") | {f"{Q}.weight": moe_weights()[f"{Q}.weight"]}
    refused(tmp_path, rf"{Q}\.weight; found BF16 \(64, 64\); expected U32", tensors=tensors, **{Q: {"bits": 4}})


def test_sides_without_a_weight(tmp_path: Path) -> None:
    refused(tmp_path, rf"{Q}\.biases without a weight; expected {Q}\.weight", tensors=without(f"{Q}.weight"))


def test_scales_of_another_type(tmp_path: Path) -> None:
    tensors = mlx_weights() | {f"{Q}.scales": np.zeros((HIDDEN, 1), np.uint8)}
    refused(tmp_path, rf"type is not supported; tensor {Q}\.scales; found U8; expected BF16, F16, F32", tensors=tensors)


def test_biases_of_another_shape(tmp_path: Path) -> None:
    tensors = mlx_weights() | {f"{Q}.biases": np.zeros((HIDDEN, 3), np.float32)}
    refused(tmp_path, rf"{Q}\.biases; found \(64, 3\), which", tensors=tensors)


def test_quantized_files_whose_config_does_not_say_how(tmp_path: Path) -> None:
    config = {key: value for key, value in mlx_config().items() if not key.startswith("quantization")}
    directory = write_mlx(tmp_path, config=config)
    with pytest.raises(CheckpointError, match=r'config\.json does not say how; tensor .*; expected "quantization": {'):
        open_checkpoint(directory)


@pytest.mark.parametrize("side", ["scales", "biases"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_sides_that_are_not_finite(tmp_path: Path, side: str, value: float) -> None:
    tensors = mlx_weights()
    tensors[f"{UP}.{side}"][1, 5, 0] = value
    source = open_checkpoint(write_mlx(tmp_path, tensors=tensors)).tensors
    at = "model.layers.1.feed_forward.experts"
    with pytest.raises(CheckpointError, match=rf"not finite; tensor {UP}\.{side}; found {value} at \[5, 0\]"):
        source.read(f"{at}.1.w3.weight")
    assert np.isfinite(source.read(f"{at}.0.w3.weight")).all()


def test_truncated_file(tmp_path: Path) -> None:
    file = write_mlx(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: damaged or truncated safetensors file"):
        open_checkpoint(tmp_path)


def test_words_of_a_module_without_scales_anywhere(tmp_path: Path) -> None:
    """Not what an unquantized tensor of another type would be told."""
    refused(
        tmp_path,
        r"scales are missing; tensor model\.embed_tokens\.scales; expected shape \(6, 1\)",
        tensors=without("model.embed_tokens.scales", "model.embed_tokens.biases"),
    )
