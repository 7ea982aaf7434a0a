from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.engine.drafters.drafter_files import SMALL, TOKENIZER, small_directory, target
from tfjax.config import ServeConfig
from tfjax.engine.drafters.choosing import ASSETS, Choice, choose_drafter, draft_depth
from tfjax.engine.drafters.loading import UnusableDrafter

TARGET = target()


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
    assert choice == Choice(None, "none of the drafters that come with tfjax is for this model")
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
