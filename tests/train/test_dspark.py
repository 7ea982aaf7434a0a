"""The command: drafters of both kinds of target that a server loads, and how it ends where something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.text import backends
from tests.train import dspark_run, tiny_lfm2, tiny_run
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.drafters.loading import load_drafter
from tfjax.engine.weights import load_model
from tfjax.text.loading import load_tokenizer
from tfjax.train.cli import main as train_main
from tfjax.train.dspark import main


def nothing(phase: str, fraction: float) -> None:
    """Progress that nobody watches."""


def words(base: Path, *flags: str) -> list[str]:
    places = [str(base / "out"), "--model", str(base / "target"), "--replies", str(base / "replies")]
    return [*places, *dspark_run.FLAGS, "--steps", "4", *flags]


def write_lfm2(base: Path) -> None:
    target = tiny_lfm2.write_model(base / "target")
    backends.byte_level().save(str(target / "tokenizer.json"))
    tiny_run.write_replies(base / "replies", target, dspark_run.different_replies())


def loaded(base: Path) -> Any:
    """The drafter as a server has it."""
    target = load_model(open_checkpoint(base / "target"), "float32", nothing)
    return load_drafter(base / "out", target, load_tokenizer(open_checkpoint(base / "target")), "float32", 3, nothing)


@pytest.mark.parametrize("liquid", [False, True])
def test_a_server_loads_what_was_trained(tmp_path: Path, liquid: bool) -> None:
    if liquid:
        write_lfm2(tmp_path)
    else:
        dspark_run.base(tmp_path)
    assert train_main(["dspark", *words(tmp_path, "--bits", "8", "--layers", "2")]) == 0
    drafter = loaded(tmp_path)
    config = drafter.loaded.config
    assert config.interleaved == liquid
    assert (config.layers, config.block, config.draft_vocab, config.markov_rows) == (2, 3, 40, 40)
    assert len(drafter.ids) == 40


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--taps", "9,"), "layer 9 cannot be read"),
        (("--replies", "nowhere"), "nowhere holds no replies"),
        (("--max-mib", "0.01", "--inner", "4096"), "more than --max-mib"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    tmp_path: Path, flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dspark_run.base(tmp_path)
    assert main(words(tmp_path, *flags)) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
