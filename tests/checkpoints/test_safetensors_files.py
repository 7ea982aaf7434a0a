"""Safetensors come out with their bits; every kind of incomplete directory is told apart."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import DTypeLike

from tests.checkpoints.hf_files import weights, write_directory
from tfjax.checkpoints import CheckpointError, safetensors_files
from tfjax.checkpoints.safetensors_files import INDEX, SINGLE, SafetensorsFiles

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
SHARDS = {FIRST: ("model.embed_tokens.weight",), SECOND: ("model.norm.weight",)}


@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "F32"), (np.float16, "F16"), (ml_dtypes.bfloat16, "BF16")])
def test_types_keep_their_bits(tmp_path: Path, dtype: DTypeLike, name: str) -> None:
    wanted = np.random.default_rng(1).standard_normal((3, 5)).astype(dtype)
    files = SafetensorsFiles(write_directory(tmp_path, tensors={"w": wanted}))
    info = files.infos["w"]
    assert (info.shape, info.dtype, info.file, info.stored_bytes) == ((3, 5), name, tmp_path / SINGLE, wanted.nbytes)
    read = files.read("w")
    assert read.dtype == dtype
    np.testing.assert_array_equal(read.view(np.uint8), wanted.view(np.uint8))


def test_shards_are_one_set_of_tensors(tmp_path: Path) -> None:
    files = SafetensorsFiles(write_directory(tmp_path, shards=SHARDS))
    assert {name: info.file.name for name, info in files.infos.items()} == {
        "model.embed_tokens.weight": FIRST,
        "model.norm.weight": SECOND,
    }
    for name, wanted in weights().items():
        np.testing.assert_array_equal(files.read(name), wanted)


def test_only_indexed_tensors_count(tmp_path: Path) -> None:
    directory = write_directory(tmp_path, shards={FIRST: tuple(weights())})
    index = {"weight_map": {"model.norm.weight": FIRST}}
    (directory / INDEX).write_text(json.dumps(index))
    assert list(SafetensorsFiles(directory).infos) == ["model.norm.weight"]


def test_one_whole_file_goes_before_an_index(tmp_path: Path) -> None:
    directory = write_directory(tmp_path, shards=SHARDS)
    write_directory(tmp_path, tensors={"w": np.zeros(2, np.float32)})
    assert list(SafetensorsFiles(directory).infos) == ["w"]


def test_missing_shard(tmp_path: Path) -> None:
    directory = write_directory(tmp_path, shards=SHARDS)
    (directory / SECOND).unlink()
    with pytest.raises(CheckpointError, match=rf"{SECOND}: shard is missing; expected the file that {INDEX} names"):
        SafetensorsFiles(directory)


@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_truncated_shard(tmp_path: Path, keep: int) -> None:
    directory = write_directory(tmp_path, shards=SHARDS)
    data = (directory / SECOND).read_bytes()[:keep]
    (directory / SECOND).write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"{SECOND}: damaged or truncated.*\({len(data)} bytes\)"):
        SafetensorsFiles(directory)


def test_tensor_missing_from_its_shard(tmp_path: Path) -> None:
    directory = write_directory(tmp_path, shards=SHARDS)
    index = {"weight_map": {"model.norm.weight": FIRST}}
    (directory / INDEX).write_text(json.dumps(index))
    message = rf"{FIRST}: tensor is in the index but not in its shard; tensor model\.norm\.weight"
    with pytest.raises(CheckpointError, match=message):
        SafetensorsFiles(directory)


@pytest.mark.parametrize(
    "shard", ["../evil.safetensors", "/etc/x.safetensors", "a\\0/b.safetensors", "weights.bin", 5, ""]
)
def test_shard_names_stay_in_the_directory(tmp_path: Path, shard: object) -> None:
    directory = write_directory(tmp_path, shards=SHARDS)
    (directory / INDEX).write_text(json.dumps({"weight_map": {"w": shard}}))
    with pytest.raises(CheckpointError, match=r"bad shard name; tensor w; found"):
        SafetensorsFiles(directory)


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": ["a"]}])
def test_index_without_a_map(tmp_path: Path, index: object) -> None:
    directory = write_directory(tmp_path, shards=SHARDS)
    (directory / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=rf"{INDEX}: no weight_map"):
        SafetensorsFiles(directory)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt", "epoch.ckpt", "w.pkl"])
def test_pickled_weights_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04.")
    message = rf"only pickled weights.*refused; found {name}; expected model\.safetensors.*safetensors"
    with pytest.raises(CheckpointError, match=message):
        SafetensorsFiles(tmp_path)


def test_shards_without_an_index(tmp_path: Path) -> None:
    directory = write_directory(tmp_path, shards=SHARDS)
    (directory / INDEX).unlink()
    with pytest.raises(CheckpointError, match=rf"unknown role; found {FIRST}, .*Shards need their {INDEX}"):
        SafetensorsFiles(directory)


def test_no_weights(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no weights; found nothing; expected model\.safetensors"):
        SafetensorsFiles(tmp_path)


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="tensor is missing; tensor nothing"):
        SafetensorsFiles(write_directory(tmp_path)).read("nothing")


def test_types_that_are_no_weights_are_refused_when_read(tmp_path: Path) -> None:
    files = SafetensorsFiles(write_directory(tmp_path, tensors={"codes": np.zeros(3, np.int32)}))
    assert files.infos["codes"].stored_bytes == 12
    with pytest.raises(CheckpointError, match="tensor codes; found I32; expected F32, F16, BF16"):
        files.read("codes")


def test_header_that_claims_more_than_the_file_holds(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    (tmp_path / SINGLE).write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 16)
    with pytest.raises(CheckpointError, match="damaged or truncated"):
        SafetensorsFiles(tmp_path)


def test_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / SINGLE).mkdir()
    with pytest.raises(CheckpointError, match=rf"{SINGLE}: cannot be read"):
        SafetensorsFiles(tmp_path)


def test_a_part_is_cut_out_by_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not out of the whole tensor, which would be read first."""
    stack = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    plain = safetensors_files.safe_open

    class WithoutWholes:
        def __init__(self, *args: object, **options: object) -> None:
            self.keys, self.get_slice = (getattr(plain(*args, **options), name) for name in ("keys", "get_slice"))

    monkeypatch.setattr(safetensors_files, "safe_open", WithoutWholes)
    files = SafetensorsFiles(write_directory(tmp_path, tensors={"w": stack}))
    np.testing.assert_array_equal(files.read("w", (1,)), stack[1])
    np.testing.assert_array_equal(files.read("w", (1, slice(1, 3))), stack[1, 1:3])


def test_types_that_are_accepted(tmp_path: Path) -> None:
    files = SafetensorsFiles(write_directory(tmp_path, tensors={"w": np.zeros(2, np.uint32)}))
    assert files.read("w", (), ("U32",)).dtype == np.uint32
    with pytest.raises(CheckpointError, match="type is not supported; tensor w; found U32; expected F32, F16, BF16"):
        files.read("w")
