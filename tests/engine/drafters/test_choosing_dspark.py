"""Which DSpark drafter is loaded, how, and on which devices none is."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.drafters.drafter_files import SMALL, TOKENIZER, small_directory
from tests.engine.drafters.dspark_files import LIQUID, TARGET, dspark_directory
from tfjax.config import ServeConfig
from tfjax.engine.drafters import choosing
from tfjax.engine.drafters.choosing import Choice, choose_drafter, draft_depth
from tfjax.engine.drafters.loading import UnusableDrafter

AUTO = LIQUID | {"target_hidden_size": 40}


def choose(assets: Path, **settings: Any) -> Choice:
    config = ServeConfig(dtype="float32", **settings)
    return choose_drafter(config, TARGET, TOKENIZER, lambda phase, share: None, assets)


@pytest.fixture
def on_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(platform="METAL", device_kind="Apple M1 Pro")
    monkeypatch.setattr(choosing, "jax", SimpleNamespace(devices=lambda: [device]))


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any, **__: Any) -> Any:
        raise AssertionError("weights are read")

    monkeypatch.setattr(choosing, "load_drafter", read)


def test_a_directory_that_is_named(tmp_path: Path) -> None:
    choice = choose(tmp_path / "empty", drafter=str(dspark_directory(tmp_path / "spark")))
    assert choice.model is not None
    assert (choice.model.kind, choice.model.taps, choice.reason) == ("dspark", (0, 2), None)


def test_auto_prefers_blocks(tmp_path: Path) -> None:
    small_directory(tmp_path / "a", config=SMALL)
    assert (choose(tmp_path).model or pytest.fail("none")).kind == "small"
    dspark_directory(tmp_path / "b", config=AUTO)
    assert (choose(tmp_path).model or pytest.fail("none")).kind == "dspark"


def test_settings_reach_the_loader(tmp_path: Path) -> None:
    named = str(dspark_directory(tmp_path / "spark"))
    plain = choose(tmp_path, drafter=named).model
    other = choose(tmp_path, drafter=named, drafter_bits=8, drafter_qk_norm="after_rope").model
    assert plain is not None
    assert other is not None
    assert (plain.loaded.config.qk_norm.value, other.loaded.config.qk_norm.value) == ("before_rope", "after_rope")
    modules: list[Any] = [plain.loaded.module, other.loaded.module]
    first, second = (module.layers[0].attention.out.weight[...] for module in modules)
    assert 0 < abs(first - second).max() < 0.02


@pytest.mark.usefixtures("on_metal", "unread")
def test_a_named_one_stands_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    named = str(dspark_directory(tmp_path / "spark"))
    with caplog.at_level(logging.INFO):
        choice = choose(tmp_path, drafter=named)
    assert [record.getMessage() for record in caplog.records] == ["DSpark standing aside on Apple M1 Pro"]
    assert choice.model is None
    assert (choice.reason or "").startswith("DSpark standing aside on Apple M1 Pro: jax-metal runs on an old jax")
    assert choice.aside == choice.reason


@pytest.mark.usefixtures("on_metal")
def test_a_user_may_insist(tmp_path: Path) -> None:
    named = str(dspark_directory(tmp_path / "spark"))
    choice = choose(tmp_path, drafter=named, drafter_policy="always")
    assert choice.model is not None
    assert choice.aside is None


@pytest.mark.usefixtures("on_metal")
def test_auto_takes_the_small_one_instead(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dspark_directory(tmp_path / "b", config=AUTO)
    with caplog.at_level(logging.INFO):
        choice = choose(tmp_path)
    assert (choice.model, choice.aside) == (None, choice.reason)
    assert [record.getMessage() for record in caplog.records] == ["DSpark standing aside on Apple M1 Pro"]
    small_directory(tmp_path / "a", config=SMALL)
    choice = choose(tmp_path)
    assert choice.model is not None
    assert choice.model.kind == "small"
    assert choice.aside is not None


@pytest.mark.usefixtures("unread")
def test_never(tmp_path: Path) -> None:
    choice = choose(tmp_path, drafter=str(dspark_directory(tmp_path / "spark")), drafter_policy="never")
    assert choice.model is None
    assert (choice.reason or "").endswith("--drafter-policy never")


def test_one_that_is_damaged(tmp_path: Path) -> None:
    file = dspark_directory(tmp_path / "assets" / "spark", config=AUTO) / "config.json"
    file.write_text(file.read_text().replace("rope_theta", "rope_thema"))
    with pytest.raises(UnusableDrafter, match=r"--drafter: config\.json lacks rope_theta"):
        choose(tmp_path / "empty", drafter=str(file.parent))
    assert "rope_theta" in (choose(file.parent.parent).reason or "")


def test_how_deep_it_drafts() -> None:
    assert draft_depth(ServeConfig(), 13) == 13
    assert draft_depth(ServeConfig(drafter_depth=4), 13) == 4
    assert draft_depth(ServeConfig(draft_tokens=6), 13) == 6
