"""A published drafter as a start: what is read of it, and what does not fit."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.models.dspark_oracle import Shape
from tests.train import dspark_tiny
from tests.train.dspark_tiny import REDUCED
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.train.dspark_files import save, served, to_hf
from tfjax.train.dspark_model import published
from tfjax.train.dspark_start import Start, read_start

SHAPE = Shape(ids=REDUCED, w1_rows=len(REDUCED), markov="gated", hidden=64, inner=96, rank=32, interleaved=True)
CONFIG = dataclasses.replace(dspark_tiny.config_of(SHAPE), vocabulary_sha256="abc")
PARAMS = dspark_tiny.random_params(CONFIG)
TARGET, _ = dspark_tiny.table_target(CONFIG, REDUCED)
IDS = np.array(REDUCED, np.int32)


def written(directory: Path, bits: int = 16, **hf: Any) -> Path:
    """A drafter's directory, its config changed."""
    save(directory, PARAMS, CONFIG, IDS, bits, to_hf(CONFIG, TARGET) | hf)
    return directory


@pytest.mark.parametrize("bits", [16, 8])
def test_training_goes_on_from_what_is_served(tmp_path: Path, bits: int) -> None:
    written(tmp_path, bits)
    found = read_start(tmp_path, CONFIG)
    expected = dict(published(served(PARAMS, bits)))
    for name, value in published(found.params):
        low = ml_dtypes.bfloat16 if "confidence" not in name else np.float32
        np.testing.assert_array_equal(value.astype(low), expected[name].astype(low), err_msg=name)
        assert value.dtype == np.float32
    assert jax.tree.structure(found.params) == jax.tree.structure(PARAMS)
    assert found.draft_ids.tolist() == list(REDUCED)


def test_the_file_and_its_directory_are_one_start(tmp_path: Path) -> None:
    file = written(tmp_path) / "model.safetensors"
    one, other = (read_start(path, CONFIG) for path in (tmp_path, file))
    assert one.sha256 == other.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert one.as_json() == {"sha256": one.sha256, "steps": None}


@pytest.mark.parametrize(
    ("record", "steps"),
    [
        ({"steps": {"taken": 40}}, 40),
        ({"steps": {"taken": 40}, "started_from": None}, 40),
        ({"steps": {"taken": 40}, "started_from": {"sha256": "a", "steps": 600}}, 640),
        ({"steps": 40}, None),
        ([], None),
    ],
)
def test_steps_are_counted_from_the_first_start(tmp_path: Path, record: Any, steps: int | None) -> None:
    (written(tmp_path) / "training.json").write_text(json.dumps(record))
    assert read_start(tmp_path, CONFIG).steps == steps


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inner": 128}, "has --inner 96, and this run 128; give --inner 96"),
        ({"layers": 5}, "give --layers 2"),
        ({"taps": (0,)}, "give --taps"),
        ({"qk_norm": QKNorm.NONE}, "has --qk-norm-order before_rope, and this run none"),
        ({"interleaved": False}, "has --rope interleaved, and this run half-split"),
        ({"draft_vocab": 13}, "give --draft-vocab 14"),
        ({"markov_rank": 8}, "give --markov-rank 32"),
        ({"mask_token": 1}, "give --mask-token"),
        ({"hidden": 32}, "drafts for a target with hidden 64, and this one has 32; .* --model"),
        ({"vocabulary_sha256": "other"}, "vocabulary_sha256 abc, and this one has other"),
    ],
)
def test_other_shapes_and_targets_are_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    written(tmp_path)
    with pytest.raises(ValueError, match=rf"--start-from: .*{message}"):
        read_start(tmp_path, dataclasses.replace(CONFIG, **changed))


def test_another_block_is_no_other_shape(tmp_path: Path) -> None:
    written(tmp_path)
    longer = dataclasses.replace(CONFIG, block=CONFIG.block + 2)
    assert isinstance(read_start(tmp_path, longer), Start)


def test_a_published_drafter_that_has_no_hash_is_taken(tmp_path: Path) -> None:
    assert isinstance(read_start(written(tmp_path, vocabulary_sha256=None), CONFIG), Start)


def test_a_drafter_without_confidences_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has confidence False, and training needs True"):
        read_start(written(tmp_path, enable_confidence_head=False), CONFIG)


def change(directory: Path, name: str, value: Any) -> None:
    tensors = load_file(directory / "model.safetensors")
    tensors[name] = value(tensors[name])
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})


def test_tensors_of_other_shapes_and_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    change(written(tmp_path / "short"), "norm.weight", lambda norm: norm[:-1])
    with pytest.raises(ValueError, match=r"norm.weight of shape \(63,\), and \(64,\) is trained"):
        read_start(tmp_path / "short", CONFIG)
    change(written(tmp_path / "nan"), "norm.weight", lambda norm: norm * np.nan)
    with pytest.raises(ValueError, match=r"values in norm.weight that are not finite"):
        read_start(tmp_path / "nan", CONFIG)


def test_what_is_no_drafter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--start-from: .*nowhere is no directory with model.safetensors"):
        read_start(tmp_path / "nowhere", CONFIG)
    directory = written(tmp_path / "llama")
    (directory / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "vocab_size": 64}))
    with pytest.raises(ValueError, match="--start-from: "):
        read_start(directory, CONFIG)
