from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from tests.engine.drafters.drafter_files import SMALL, TOKENIZER, small_directory, target
from tfjax.config import ServeConfig
from tfjax.engine.drafters.choosing import ASSETS, Choice, choose_drafter, draft_depth
from tfjax.engine.drafters.loading import UnusableDrafter
from tfjax.engine.table import Order, table_bytes, vocabulary_hash
from tfjax.lanes.table_drafts import key_of

TARGET = target()
VOCABULARY = vocabulary_hash(TOKENIZER)


def choose(assets: Path, drafter: str = "auto", *, no_drafts: bool = False) -> Choice:
    config = ServeConfig(drafter=drafter, no_drafts=no_drafts, dtype="float32")
    return choose_drafter(config, TARGET, TOKENIZER, lambda phase, share: None, assets)


@pytest.mark.parametrize(
    ("drafter", "no_drafts", "reason"),
    [("none", False, "drafts are off"), ("auto", True, "drafts are off"), ("copy", False, "--drafter copy")],
)
def test_where_no_model_is_wanted_none_is_looked_for(
    drafter: str, no_drafts: bool, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small_directory(tmp_path / "little")
    choice = choose(tmp_path, drafter, no_drafts=no_drafts)
    assert choice.model is None
    assert reason in (choice.reason or "")
    assert not caplog.records


def test_auto_takes_the_one_made_for_the_model(tmp_path: Path) -> None:
    small_directory(tmp_path / "a", config=SMALL | {"target_hidden_size": 48})
    small_directory(tmp_path / "b", config=SMALL | {"vocab_size": 265})
    small_directory(tmp_path / "c")
    choice = choose(tmp_path)
    assert choice.model is not None
    assert (choice.model.name, choice.reason) == ("c", None)


def test_auto_that_finds_none_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    small_directory(tmp_path / "a", config=SMALL | {"target_hidden_size": 48})
    with caplog.at_level(logging.INFO):
        choice = choose(tmp_path)
    assert choice == Choice(None, "none of those that come with tfjax is for this model")
    assert [record.getMessage() for record in caplog.records] == [f"no small model drafts: {choice.reason}"]


@pytest.mark.parametrize("damage", ["weights", "config"])
def test_auto_goes_on_without_one_that_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    file = small_directory(tmp_path / "little") / {"weights": "model.safetensors", "config": "config.json"}[damage]
    file.write_bytes(file.read_bytes()[:-20])
    with caplog.at_level(logging.INFO):
        choice = choose(tmp_path)
    assert choice.model is None
    assert str(file) in (choice.reason or "")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_one_that_was_named_must_work(tmp_path: Path) -> None:
    choice = choose(tmp_path / "empty", str(small_directory(tmp_path / "named")))
    assert choice.model is not None
    assert choice.model.name == "named"
    with pytest.raises(UnusableDrafter, match="no such model"):
        choose(tmp_path / "empty", str(tmp_path / "nowhere"))


def test_the_depth_is_capped_by_the_drafts_of_a_round() -> None:
    assert draft_depth(ServeConfig(drafter_depth=5)) == 5
    assert draft_depth(ServeConfig(drafter_depth=5, draft_tokens=3)) == 3


def test_assets_lie_in_the_package() -> None:
    assert ASSETS.parent.name == "tfjax"
    assert (ASSETS.parent / "config.py").exists()


# Tables.


def write_table(file: Path, vocabulary: str = VOCABULARY) -> Path:
    """What follows token 5 is 7."""
    file.parent.mkdir(parents=True, exist_ok=True)
    order = Order(np.array([[5]], np.uint32), np.array([7], np.uint32), np.array([200], np.uint8))
    file.write_bytes(table_bytes([order], vocabulary))
    return file


def test_auto_takes_the_table_of_the_vocabulary_too(tmp_path: Path) -> None:
    small_directory(tmp_path / "little")
    write_table(tmp_path / "a.safetensors", "another")
    write_table(tmp_path / "b.safetensors")
    choice = choose(tmp_path)
    assert choice.model is not None
    assert choice.table is not None
    assert choice.table.after(key_of([5])) == (7, 200 / 255)
    (tmp_path / "little" / "config.json").unlink()
    assert choose(tmp_path).table is not None
    (tmp_path / "b.safetensors").unlink()
    assert choose(tmp_path).table is None


def test_a_table_alone(tmp_path: Path) -> None:
    small_directory(tmp_path / "little")
    file = write_table(tmp_path / "b.safetensors")
    for drafter in ("table", str(file)):
        choice = choose(tmp_path, drafter)
        assert (choice.model, choice.table is None) == (None, False)
        assert choice.reason == f"--drafter {drafter} drafts without a small model"
    assert choose(tmp_path, "copy").table is None
    assert choose(tmp_path, str(tmp_path / "little")).table is None


def test_a_table_that_was_named_must_work(tmp_path: Path) -> None:
    with pytest.raises(UnusableDrafter, match=r"--drafter table: tfjax comes with none\. Give a table's file"):
        choose(tmp_path, "table")
    write_table(tmp_path / "a.safetensors", "another")
    with pytest.raises(UnusableDrafter, match=r"--drafter table: .*a.safetensors was made for another vocabulary"):
        choose(tmp_path, "table")
    with pytest.raises(UnusableDrafter, match=r"--drafter: .*a.safetensors was made for another vocabulary"):
        choose(tmp_path, str(tmp_path / "a.safetensors"))
    with pytest.raises(UnusableDrafter, match=r"nowhere\.safetensors"):
        choose(tmp_path, str(tmp_path / "nowhere.safetensors"))
