"""The files of a trained drafter: read back by what serves them, in 16 and in 8 bits."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest

from tests.models.dspark_oracle import Shape
from tests.train import dspark_tiny
from tests.train.dspark_tiny import REDUCED
from tfjax.checkpoints import open_checkpoint
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.dspark_tensors import sources
from tfjax.train.dspark_files import file_bytes, form_of, part_bytes, save, served, to_hf
from tfjax.train.dspark_model import published

SHAPE = Shape(ids=REDUCED, w1_rows=len(REDUCED), markov="gated", hidden=64, inner=96, rank=32, interleaved=True)
CONFIG = dataclasses.replace(dspark_tiny.config_of(SHAPE), vocabulary_sha256="abc")
PARAMS = dspark_tiny.random_params(CONFIG)
TARGET, _ = dspark_tiny.table_target(CONFIG, REDUCED)
IDS = np.array(REDUCED, np.int32)


def saved(directory: Path, bits: int, config: DSparkConfig = CONFIG) -> Path:
    save(directory, PARAMS, config, IDS, bits, to_hf(config, TARGET))
    return directory


@pytest.mark.parametrize("bits", [16, 8])
def test_what_is_read_is_what_was_measured(tmp_path: Path, bits: int) -> None:
    checkpoint = open_checkpoint(saved(tmp_path, bits))
    measured = dict(published(served(PARAMS, bits)))
    names = {part.name for parts in sources(CONFIG).values() for part in parts}
    assert set(checkpoint.tensors.infos) == names | {"d2t"}
    for name in names:
        found = np.asarray(checkpoint.tensors.read(name)).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(found, measured[name].astype(ml_dtypes.bfloat16), err_msg=name)
    np.testing.assert_array_equal(checkpoint.tensors.read("d2t") + np.arange(len(IDS)), IDS)


def test_eight_bits_are_close_and_not_equal() -> None:
    exact, rounded = dict(published(PARAMS)), dict(published(served(PARAMS, 8)))
    for name, value in exact.items():
        error = np.abs(rounded[name].astype(np.float32) - value).max()
        assert error < 0.02
        assert (error > 0) == ("confidence" not in name)
    vector = np.asarray(PARAMS["norm"]).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(rounded["norm.weight"], vector)


def test_the_config_is_read_back(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, confidence_temperatures=(1.5, 1.0, 0.5, 2.0, 3.0))
    hf = json.loads((saved(tmp_path, 8, config) / "config.json").read_text())
    found = DSparkConfig.from_hf(hf)
    assert dataclasses.replace(found, markov_rows=CONFIG.markov_rows) == config
    assert hf["vocabulary_sha256"] == "abc"
    assert hf["dflash_config"]["num_target_layers"] == TARGET.layers


def test_the_config_names_the_targets_kind() -> None:
    other = dataclasses.replace(TARGET, drafter="Lfm2DSparkDraftModel")
    assert to_hf(CONFIG, TARGET)["architectures"] == ["Qwen3DSparkModel"]
    assert to_hf(CONFIG, other)["architectures"] == ["Lfm2DSparkDraftModel"]
    assert "confidence_temperatures" not in to_hf(CONFIG, TARGET)


def test_each_tensor_has_the_largest_group_that_fills_its_rows(tmp_path: Path) -> None:
    hf = json.loads((saved(tmp_path, 8) / "config.json").read_text())
    assert hf["quantization"] == hf["quantization_config"]
    assert hf["quantization"]["group_size"] == 64
    assert hf["quantization"]["markov_head.markov_w1"] == {"group_size": 32, "bits": 8}
    assert form_of("x", (4, 40), 8) is None
    assert form_of("x", (64,), 8) is None
    assert form_of("confidence_head.proj.weight", (1, 64), 8) is None
    assert form_of("x", (4, 64), 16) is None


@pytest.mark.parametrize("bits", [16, 8])
def test_the_size_is_known_before(tmp_path: Path, bits: int) -> None:
    directory = saved(tmp_path, bits)
    header = int.from_bytes((directory / "model.safetensors").read_bytes()[:8], "little") + 8
    assert (directory / "model.safetensors").stat().st_size - header == file_bytes(CONFIG, bits)
    assert sum(part_bytes(CONFIG, bits).values()) == file_bytes(CONFIG, bits)


def test_a_whole_vocabulary_needs_no_map(tmp_path: Path) -> None:
    config = dspark_tiny.config_of(dataclasses.replace(SHAPE, ids=tuple(range(64)), w1_rows=64))
    params = dspark_tiny.random_params(config)
    save(tmp_path, params, config, np.arange(64, dtype=np.int32), 16, to_hf(config, TARGET))
    assert "d2t" not in open_checkpoint(tmp_path).tensors.infos
    assert jax.tree.structure(served(params, 16)) == jax.tree.structure(params)
