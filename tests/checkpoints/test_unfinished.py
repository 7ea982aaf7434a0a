"""A directory that appears whole, whoever else writes it or was killed while doing so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjax.checkpoints import CheckpointError
from tfjax.checkpoints import unfinished as unfinished_module
from tfjax.checkpoints.unfinished import new_directory


def test_it_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "target"
    with new_directory(target) as unfinished:
        (unfinished / "file").write_text("text")
        assert not target.exists()
        assert unfinished.name == ".target.unfinished"
    assert (target / "file").read_text() == "text"
    assert target.stat().st_mode & 0o777 == 0o755
    assert list(target.parent.iterdir()) == [target]


def fail_after_writing(directory: Path, error: type[BaseException]) -> None:
    (directory / "file").write_text("text")
    raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_fails_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), new_directory(tmp_path / "target") as unfinished:
        fail_after_writing(unfinished, error)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_writer_left_is_cleared(tmp_path: Path) -> None:
    left = tmp_path / ".target.unfinished"
    left.mkdir()
    (left / "half").write_text("half")
    with new_directory(tmp_path / "target") as unfinished:
        assert not list(unfinished.iterdir())
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


def test_a_writer_at_work_keeps_its_files(tmp_path: Path) -> None:
    with new_directory(tmp_path / "target") as unfinished:
        (unfinished / "file").write_text("text")
        refusal = r"is being written.*Wait for the other process or end it"
        with pytest.raises(CheckpointError, match=refusal), new_directory(tmp_path / "target"):
            raise AssertionError("two writers")
        assert (unfinished / "file").read_text() == "text"
    assert (tmp_path / "target" / "file").exists()


def test_what_exists_is_never_changed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    refusal = "exists already; expected a new directory"
    with pytest.raises(CheckpointError, match=refusal), new_directory(tmp_path / "target"):
        raise AssertionError("over an old one")
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Nothing of a directory elsewhere is taken for what a writer left."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("text")
    (tmp_path / ".target.unfinished").symlink_to(mine)
    with pytest.raises(OSError, match=r"\.target\.unfinished"), new_directory(tmp_path / "target"):
        raise AssertionError("followed")
    assert (mine / "file").read_text() == "text"


def test_who_waited_for_the_lock_sees_what_was_finished_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    monkeypatch.setattr(unfinished_module, "_lock", lambda opened, unfinished: unfinished.rename(target))
    with pytest.raises(CheckpointError, match="exists already"), new_directory(target):
        raise AssertionError("over another's")
    assert list(tmp_path.iterdir()) == [target]
