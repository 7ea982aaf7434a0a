"""The index is read once and kept; damaged files are told apart from usable ones."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkpoints.gguf_files import METADATA, TOKENS, TYPES, write_gguf
from tfjax.checkpoints import CheckpointError, gguf_index
from tfjax.checkpoints.gguf_index import GgufIndex, GgufVocabulary, open_gguf
from tfjax.checkpoints.gguf_reader import BoundedReader


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "m.gguf", metadata={"tokenizer.ggml.scores": [0.5] * len(TOKENS)})


def no_reader(path: Path) -> object:
    raise AssertionError(f"read {path} although its index is cached")


def test_index_holds_metadata_without_the_vocabulary(model: Path) -> None:
    file = open_gguf(model)
    arrays = {"tokens", "token_type", "scores", "merges"}
    wanted = set(METADATA) - {f"tokenizer.ggml.{name}" for name in arrays}
    assert set(file.metadata) == wanted
    assert file.metadata["llama.block_count"] == 1
    assert file.index.vocabulary_size == len(TOKENS)


def test_tensor_table_equals_the_readers(model: Path) -> None:
    table = {tensor.name: tensor for tensor in open_gguf(model).index.tensors}
    for tensor in gguf.GGUFReader(model).tensors:
        row = table[tensor.name]
        found = (row.type, row.shape, row.offset, row.stored_bytes)
        shape = tuple(int(size) for size in tensor.shape)[::-1]
        assert found == (tensor.tensor_type.name, shape, tensor.data_offset, tensor.n_bytes)


def test_vocabulary(model: Path) -> None:
    wanted = GgufVocabulary(list(TOKENS), list(TYPES), [0.5] * len(TOKENS), ["a b"])
    assert open_gguf(model).vocabulary() == wanted


def test_bounded_reader_equals_the_packages(model: Path) -> None:
    ours, theirs = BoundedReader(model), gguf.GGUFReader(model)
    assert {key: field.contents() for key, field in ours.fields.items()} == {
        key: field.contents() for key, field in theirs.fields.items()
    }
    assert [tensor.data.tobytes() for tensor in ours.tensors] == [tensor.data.tobytes() for tensor in theirs.tensors]


def test_second_opening_reads_the_cache_only(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_gguf(model)
    vocabulary = first.vocabulary()
    monkeypatch.setattr(gguf_index, "_open_reader", no_reader)
    second = open_gguf(model)
    assert second.index == first.index
    assert isinstance(second.index, GgufIndex)
    assert second.vocabulary() == vocabulary


def test_changed_file_is_read_again(model: Path) -> None:
    open_gguf(model)
    write_gguf(model, metadata={"llama.context_length": 65})
    os.utime(model, ns=(1, 1))
    assert open_gguf(model).metadata["llama.context_length"] == 65


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\xfe", b'{"version": 1'])
def test_damaged_cache_is_read_again(model: Path, cache_directory: Path, damage: bytes) -> None:
    wanted = open_gguf(model)
    vocabulary = wanted.vocabulary()
    for entry in cache_directory.rglob("*.json"):
        entry.write_bytes(damage)
    assert open_gguf(model).index == wanted.index
    assert open_gguf(model).vocabulary() == vocabulary


def test_not_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(CheckpointError, match=r"not a GGUF file; found first bytes b'PK.*; expected b'GGUF'"):
        open_gguf(path)


def test_other_version(tmp_path: Path, model: Path) -> None:
    data = bytearray(model.read_bytes())
    data[4:8] = struct.pack("<I", 99)
    model.write_bytes(data)
    with pytest.raises(CheckpointError, match="version 99"):
        open_gguf(model)


def test_other_byte_order(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match="other byte order"):
        open_gguf(path)


def test_tensor_that_is_there_twice(model: Path) -> None:
    data = model.read_bytes()
    # A name of the same length takes the other's place in the tensor table.
    model.write_bytes(data.replace(b"blk.0.attn_q.weight", b"blk.0.attn_k.weight"))
    with pytest.raises(CheckpointError, match=r"tensor blk\.0\.attn_k\.weight is in the file twice"):
        open_gguf(model)


def test_unknown_type_names_the_tensor(model: Path) -> None:
    data = model.read_bytes()
    name = b"blk.0.ffn_gate.weight"
    at = data.index(name) + len(name) + 4 + 2 * 8
    model.write_bytes(data[:at] + struct.pack("<I", 250) + data[at + 4 :])
    with pytest.raises(CheckpointError, match=r"tensor blk\.0\.ffn_gate\.weight: .*250.* is not a valid"):
        open_gguf(model)


def test_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").mkdir()
    with pytest.raises(CheckpointError, match=r"m\.gguf: cannot be read; found Is a directory"):
        open_gguf(tmp_path / "m.gguf")


def test_huge_counts_over_missing_data_end_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    key = b"x"
    array = struct.pack("<IQ", 0, 2**60)
    path.write_bytes(
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key + struct.pack("<I", 9) + array
    )
    with pytest.raises(CheckpointError, match="damaged or truncated"):
        open_gguf(path)


def test_deeply_nested_arrays_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    nested = struct.pack("<IQ", 9, 1) * 5000
    path.write_bytes(
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"x" + struct.pack("<I", 9) + nested
    )
    with pytest.raises(CheckpointError, match="damaged or truncated"):
        open_gguf(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_truncation_is_an_error_with_the_file_named(model: Path, data: st.DataObject) -> None:
    whole = model.read_bytes()
    # Within the metadata and tensor table, where the reader itself must notice.
    cut = data.draw(st.integers(4, min(2000, len(whole) - 1)))
    damaged = model.with_name("cut.gguf")
    damaged.write_bytes(whole[:cut])
    with pytest.raises(CheckpointError, match=r"cut\.gguf"):
        open_gguf(damaged)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(4, 1500), byte=st.integers(0, 255))
def test_any_changed_byte_of_the_header_is_an_error_or_harmless(model: Path, position: int, byte: int) -> None:
    data = bytearray(model.read_bytes())
    data[position] = byte
    damaged = model.with_name("changed.gguf")
    damaged.write_bytes(data)
    with contextlib.suppress(CheckpointError):
        open_gguf(damaged)
