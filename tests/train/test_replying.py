"""The command as it runs: a tiny model in processes of their own, one of which is killed."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.train.tiny_run import write_target
from tfjax.train import main, replying
from tfjax.train.corpus import is_held_out
from tfjax.train.harvest import Corpus
from tfjax.train.replying import ReplySettings, wide_plan
from tfjax.train.shards import answers_problems, read_recipe, read_replies, shards

PROBLEMS = [{"entry_point": f"f{i}", "prompt": f"def f{i}(a):\n    '''Add {i}.'''\n"} for i in range(12)]
TEMPLATE = "{% for m in messages %}<s>{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = write_target(tmp_path_factory.mktemp("model") / "target")
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(problem) + "\n" for problem in PROBLEMS)
    return path


def words(output: Path, target: Path, problems: Path) -> list[str]:
    return [
        *("replies", "--output", str(output), "--model", str(target), "--humaneval", str(problems)),
        *("--tokens", "100000", "--context", "160", "--max-tokens", "40", "--parallel", "4", "--save-every", "0"),
        *("--dtype", "float32"),
    ]


def start(output: Path, target: Path, problems: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tfjax", "train", *words(output, target, problems)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


@pytest.mark.slow
def test_after_a_kill_the_replies_are_those_of_a_run_that_was_not_killed(
    tmp_path: Path, target: Path, problems: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    out, err = start(whole, target, problems).communicate(timeout=100)
    expected = {reply.index: reply for reply in read_replies(whole)}
    assert len(expected) == 4 * len(PROBLEMS), err
    assert f"{whole} holds {sum(len(reply.reply) for reply in expected.values())} reply tokens" in out
    process = start(killed, target, problems)
    deadline = time.monotonic() + 100
    while len(shards(killed)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    before = list(read_replies(killed))
    assert 0 < len(before) < len(expected)
    _, err = start(killed, target, problems).communicate(timeout=100)
    after = list(read_replies(killed))
    assert after[: len(before)] == before
    assert len(after) == len(expected), err
    assert {reply.index: reply for reply in after} == expected
    assert {reply.temperature for reply in after} == {0.0, 0.8}
    assert len({reply.reply for reply in after}) > len(PROBLEMS)
    recipe = read_recipe(killed)
    assert (recipe["context"], recipe["most_new"], recipe["prompts"]) == (160, 40, "HumanEval 1")
    assert answers_problems(recipe)


def test_a_directory_of_another_recipe_is_left_alone(
    tmp_path: Path, target: Path, problems: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfjax.runtime.prepare_runtime", lambda: None)
    (tmp_path / "recipe.json").write_text("{}")
    assert main(words(tmp_path, target, problems)) == 1
    assert "holds replies of another recipe" in capsys.readouterr().err
    assert (tmp_path / "recipe.json").read_text() == "{}"


def test_a_model_that_cannot_chat_is_refused(
    tmp_path: Path, problems: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfjax.runtime.prepare_runtime", lambda: None)
    target = write_target(tmp_path / "mute")
    assert main(words(tmp_path / "replies", target, problems)) == 1
    assert "mute has no chat template" in capsys.readouterr().err


def test_problems_that_are_none_are_refused(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfjax.runtime.prepare_runtime", lambda: None)
    path = tmp_path / "problems.jsonl.gz"
    path.write_text("{}")
    assert main(words(tmp_path / "replies", target, path)) == 1
    assert "is no HumanEval.jsonl.gz" in capsys.readouterr().err


@pytest.mark.parametrize(("parallel", "rows"), [(1, 8), (32, 32), (60, 60)])
def test_every_reply_has_a_row(parallel: int, rows: int) -> None:
    plan = wide_plan(parallel)
    assert plan.verify_bucket(parallel, 1).rows == rows
    assert sum(plan.prompt_pieces(500)) == 500


def test_prompts_leave_out_what_the_model_never_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def harvested(held_out: Any, skips: Any) -> Corpus:
        seen.append(skips)
        return Corpus((), (), (), {})

    monkeypatch.setattr(replying, "harvest", harvested)
    settings = ReplySettings(tmp_path, 1, 1, None, "float32", 64, 32, 2, 1.0, None)
    assert replying._prompts(settings, tmp_path).name == "Python sources 1"
    (tmp_path / "training.json").write_text('{"corpus": {"documents": {"held_out": {"files": 1}}}}')
    assert replying._prompts(settings, tmp_path).name == "learned Python sources 1"
    assert seen == [None, is_held_out]
