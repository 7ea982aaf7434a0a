"""`tfjax research order` on tiny pairs, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.drafters.drafter_files import LLAMA_HF, llama_directory, small_directory
from tests.engine.drafters.dspark_files import LIQUID, dspark_arrays, dspark_directory
from tfjax.engine.drafters.choosing import Choice, choose_drafter
from tfjax.research import main as research
from tfjax.research import order_serving
from tfjax.research.norm_pairs import pair_difference
from tfjax.research.order import differences, main, read_prompts
from tfjax.research.order_prompts import PROMPTS

TARGET_HF = LLAMA_HF | {
    "vocab_size": 264,
    "hidden_size": 40,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "max_position_embeddings": 256,
}
NORMS = {name: array for name, array in dspark_arrays().items() if name.endswith(("q_norm.weight", "k_norm.weight"))}


@pytest.mark.parametrize("interleaved", [True, False])
def test_pairs_are_those_of_the_config(tmp_path: Path, interleaved: bool) -> None:
    config = LIQUID | {"rope_is_neox_style": not interleaved, "qk_norm_order": "after_rope"}
    stated, layers = differences(dspark_directory(tmp_path / "spark", config=config))
    assert stated == "after_rope"
    assert [layer.layer for layer in layers] == [0, 1]
    weight = NORMS["layers.1.self_attn.k_norm.weight"]
    assert layers[1].k == pytest.approx(pair_difference(weight, interleaved=interleaved))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


def test_a_small_drafter_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "target", str(small_directory(tmp_path / "small")))
    assert "whose order its architecture fixes; give a DSpark drafter" in error


def test_a_drafter_without_norms_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone: dict[str, Any] = dict.fromkeys(NORMS)
    error = refused(capsys, "target", str(dspark_directory(tmp_path / "spark", **gone)))
    assert "has no q_norm and k_norm weights" in error
    assert "--drafter-qk-norm none" in error


def test_a_damaged_drafter_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spark = dspark_directory(tmp_path / "spark", **{"layers.0.self_attn.q_norm.weight": None})
    assert "layer 0 has a norm of k only" in refused(capsys, "target", str(spark))


def test_equal_weights_need_no_serving(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    level = {name: np.full_like(array, 2) for name, array in NORMS.items()}
    assert main([str(tmp_path / "no target"), str(dspark_directory(tmp_path / "spark", **level))]) == 0
    assert "The order cannot show" in capsys.readouterr().out


def test_prompts_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("one\n\n  \n two \n", encoding="utf-8")
    assert read_prompts(file) == ("one", " two ")
    assert read_prompts(None) == PROMPTS
    file.write_text("one\n\n", encoding="utf-8")
    assert "has 1 prompts; give two or more" in refused(capsys, "target", "drafter", "--prompts", str(file))


@pytest.mark.parametrize(("flag", "value"), [("--tokens", "1"), ("--seed", "-1"), ("--tokens", "many")])
def test_numbers_have_limits(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["target", "drafter", f"{flag}={value}"]) == 2
    assert f"{flag}: '{value}'" in capsys.readouterr().err


def test_help_names_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        research(["order", "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert "usage: tfjax research order TARGET DRAFTER" in said
    assert said.count("(default:") == 4
    assert research([]) == 2
    assert "order  whether a DSpark drafter" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_both_orders_are_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    chosen: list[str] = []

    def choose(*words: Any) -> Choice:
        choice = choose_drafter(*words)
        assert choice.model is not None
        chosen.append(choice.model.loaded.config.qk_norm.value)
        return choice

    monkeypatch.setattr(order_serving, "choose_drafter", choose)
    target, spark = llama_directory(tmp_path / "target", config=TARGET_HF), dspark_directory(tmp_path / "spark")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one and two\nthree\nfour, five\n", encoding="utf-8")
    words = [str(target), str(spark), "--prompts", str(prompts), "--tokens", "40", "--dtype", "float32"]
    assert research(["order", *words]) == 0
    assert chosen == ["before_rope", "after_rope"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "difference of the norms' weights within rotated pairs"
    start = next(number for number, line in enumerate(lines) if line.startswith("drafts kept"))
    rows = [line.split() for line in lines[start + 1 : start + 3]]
    assert [row[0] for row in rows] == ["greedy", "at"]
    assert all(int(row[-2]) >= 2 for row in rows)
    assert all(int(row[-1]) >= 12 for row in rows)
    assert lines[-1].startswith(("Undecided: ", "before_rope keeps", "after_rope keeps"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_prompt_without_room_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, spark = llama_directory(tmp_path / "target", config=TARGET_HF), dspark_directory(tmp_path / "spark")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("x" * 300 + "\none\n", encoding="utf-8")
    error = refused(capsys, str(target), str(spark), "--prompts", str(prompts), "--dtype", "float32")
    assert "the model takes 256, the reply included; shorten it" in error
