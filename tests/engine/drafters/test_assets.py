from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.drafters.drafter_files import SMALL, small_directory
from tests.engine.drafters.dspark_files import LIQUID, TARGET, dspark_directory
from tfjax.engine.drafters.assets import ASSETS, is_dspark, made_for

FITTING = LIQUID | {"target_hidden_size": 40}


def test_assets_lie_in_the_package() -> None:
    assert ASSETS.parent.name == "tfjax"
    assert (ASSETS.parent / "config.py").exists()


def test_those_that_make_blocks_come_first(tmp_path: Path) -> None:
    small_directory(tmp_path / "a", config=SMALL)
    dspark_directory(tmp_path / "b", config=FITTING)
    assert made_for(TARGET, tmp_path) == {tmp_path / "b": True, tmp_path / "a": False}
    assert next(iter(made_for(TARGET, tmp_path))) == tmp_path / "b"


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_size": 265},
        {"dflash_config": LIQUID["dflash_config"] | {"num_target_layers": 5}},
        {"hidden_size": 48, "target_hidden_size": 48},
    ],
)
def test_one_for_another_target_is_none(change: dict[str, object], tmp_path: Path) -> None:
    dspark_directory(tmp_path / "b", config=FITTING | change)
    assert made_for(TARGET, tmp_path) == {}


def test_what_makes_blocks() -> None:
    assert [is_dspark(name) for name in ("Lfm2DSparkDraftModel", "LlamaForCausalLM", "TfjaxSmallDrafter", "x")] == [
        True, False, False, False,
    ]  # fmt: skip
