from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfjax.checkpoints.digest import weights_sha256


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def checkpoint(*files: Path) -> Any:
    infos = {str(place): SimpleNamespace(file=file) for place, file in enumerate((*files, *files))}
    return SimpleNamespace(tensors=SimpleNamespace(infos=infos))


def written(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file


def test_one_file_has_its_own_hash_and_is_read_once(tmp_path: Path) -> None:
    file = written(tmp_path / "a", b"weights")
    said: list[str] = []
    wanted = hashlib.sha256(b"weights").hexdigest()
    assert weights_sha256(checkpoint(file), lambda phase, share: said.append(phase)) == wanted
    assert said == ["hashing the weights"]
    assert weights_sha256(checkpoint(file), lambda phase, share: said.append(phase)) == wanted
    assert len(said) == 1


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    file = written(tmp_path / "a", b"weights")
    first = weights_sha256(checkpoint(file), lambda phase, share: None)
    written(file, b"weighty")
    os.utime(file, ns=(1, 1))
    assert weights_sha256(checkpoint(file), lambda phase, share: None) != first


def test_several_files_are_hashed_as_sha256sum_lists_them(tmp_path: Path) -> None:
    two, one = written(tmp_path / "b", b"2"), written(tmp_path / "a", b"1")
    lines = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in (("a", b"1"), ("b", b"2")))
    shares: list[float] = []
    assert (
        weights_sha256(checkpoint(two, one), lambda phase, share: shares.append(share))
        == hashlib.sha256(lines.encode()).hexdigest()
    )
    assert shares == [0.0, 0.5]
