"""A cached value is found for the same file in the same state, and only then."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tfjax.checkpoints import cache


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "model"
    file.write_bytes(b"abc")
    return file


def test_round_trip(model: Path) -> None:
    cache.store(model, "kind", [1, 2])
    assert cache.load(model, "kind", list[int]) == [1, 2]


def test_kinds_and_files_are_apart(model: Path) -> None:
    other = model.with_name("other")
    other.write_bytes(b"abc")
    cache.store(model, "kind", [1])
    assert cache.load(model, "other", list[int]) is None
    assert cache.load(other, "kind", list[int]) is None


@pytest.mark.parametrize("change", ["size", "time"])
def test_a_changed_file_has_no_value(model: Path, change: str) -> None:
    cache.store(model, "kind", [1])
    status = model.stat()
    if change == "size":
        model.write_bytes(b"abcd")
        os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert cache.load(model, "kind", list[int]) is None


def test_an_older_form_has_no_value(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store(model, "kind", [1])
    assert cache.load(model, "kind", list[str]) is None
    monkeypatch.setattr(cache, "CACHE_VERSION", cache.CACHE_VERSION + 1)
    assert cache.load(model, "kind", list[int]) is None


def test_one_changed_character_of_the_value_is_noticed(model: Path, cache_directory: Path) -> None:
    cache.store(model, "kind", ["aaa"])
    (entry,) = cache_directory.rglob("*.json")
    entry.write_bytes(entry.read_bytes().replace(b"aaa", b"aab"))
    assert cache.load(model, "kind", list[str]) is None


def test_a_cache_that_cannot_be_written_is_no_error(model: Path, cache_directory: Path) -> None:
    cache_directory.parent.mkdir(parents=True)
    cache_directory.write_text("a file in the way")
    cache.store(model, "kind", [1])
    assert cache.load(model, "kind", list[int]) is None


def test_a_missing_file_has_no_value(tmp_path: Path) -> None:
    cache.store(tmp_path / "nothing", "kind", [1])
    assert cache.load(tmp_path / "nothing", "kind", list[int]) is None


def test_writers_at_once_leave_one_whole_value_and_no_scraps(model: Path, cache_directory: Path) -> None:
    threads = [threading.Thread(target=cache.store, args=(model, "kind", [n] * 1000)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    value = cache.load(model, "kind", list[int])
    assert value is not None
    assert len(set(value)) == 1
    assert len(list(cache_directory.rglob("*"))) == 2


def test_home_without_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_home() == Path.home() / ".cache" / "tfjax"
