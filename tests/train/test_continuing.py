"""Continuations of a corpus: prompts, ends, the same after a kill, and what does not go together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints.hf_files import write_directory
from tests.train import tiny_lfm2, tiny_run
from tests.train.tiny_target import tiny_sources
from tfjax.train import continuing
from tfjax.train.continuations import main
from tfjax.train.continuing import prompts, until_end
from tfjax.train.corpus_tokens import make_corpus
from tfjax.train.lfm2_names import flatten
from tfjax.train.shards import UnusableReplies, check_learnable, read_recipe, read_replies, shards
from tfjax.train.target_tokenizer import START

__all__ = ["tiny_sources"]
pytestmark = pytest.mark.usefixtures("tiny_sources")


def nothing(phase: str, fraction: float) -> None:
    """Progress that nobody watches."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A random target with the tokenizer of the tiny corpus."""
    directory = tmp_path / "model"
    make_corpus(directory / "corpus", {"version": 1, "asked_vocab": 300, "packages": []}, nothing)
    write_directory(directory, config=tiny_lfm2.CONFIG.to_hf(), tensors=dict(flatten(tiny_lfm2.weights())))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).write_bytes((directory / "corpus" / name).read_bytes())
    return directory


def words(model: Path, output: str, *more: str) -> list[str]:
    sizes = ("--prompt-tokens", "12", "--max-tokens", "10", "--parallel", "8", "--tokens", "150")
    return ["--model", str(model), "--output", str(model.parent / output), *sizes, *more]


def test_replies_follow_pieces_of_the_corpus_and_a_kill_changes_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(model, "whole")) == 0
    assert "reply tokens" in capsys.readouterr().out
    found = list(read_replies(model.parent / "whole"))
    assert sum(len(reply.reply) for reply in found) >= 150
    assert len(shards(model.parent / "whole")) > 1
    assert [reply.index for reply in found] == list(range(len(found)))
    assert {reply.temperature for reply in found} <= {0.0, 0.8, 1.0}
    assert all(8 <= len(reply.prompt) <= 12 and reply.prompt[0] == START for reply in found)
    assert all(1 <= len(reply.reply) <= 10 for reply in found)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    assert main(words(model, "cut", "--tokens", "1")) == 0
    with monkeypatch.context() as patch:
        patch.setattr(continuing, "write_shard", killed)
        assert main(words(model, "cut")) == 130
    assert main(words(model, "cut")) == 0
    assert list(read_replies(model.parent / "cut")) == found


def test_temperatures_are_those_asked_for_and_recorded(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = words(model, "warm", "--temperatures", "0.6", "1.25")
    assert main(asked) == 0
    assert {reply.temperature for reply in read_replies(model.parent / "warm")} == {0.6, 1.25}
    assert read_recipe(model.parent / "warm")["sampling"] == "temperatures 0.6 1.25"
    assert main(words(model, "warm")) == 1
    assert "sampling 'temperatures 0.6 1.25' there, '' now" in capsys.readouterr().err
    assert main(words(model, "usual", "--temperatures", "0", "0", "0.8", "1", "--tokens", "1")) == 0
    assert read_recipe(model.parent / "usual")["sampling"] == ""
    for wrong in ("warm", "-1"):
        assert main(words(model, "none", f"--temperatures={wrong}")) == 2
        assert f"--temperatures: one of {wrong} is not" in capsys.readouterr().err


def test_held_out_text_measures_and_trains_nothing(model: Path) -> None:
    assert main(words(model, "held", "--held-out", "--tokens", "1")) == 0
    recipe = read_recipe(model.parent / "held")
    assert recipe["model"] == "model"
    with pytest.raises(UnusableReplies, match=r"replies to held-out text, which measure .* as --measure"):
        check_learnable(model.parent / "held", recipe, "--measure")
    assert main(words(model, "held")) == 1  # learned text does not join it
    check_learnable(model.parent, {"prompts": "learned code 1"}, "--measure")


def test_prompts_begin_documents_or_anywhere() -> None:
    part = np.array([START, 20, 21, 22, 2, START, 30, 31, 32, 33, 2], np.uint16)
    found = prompts(part, 400, 4, np.random.default_rng(0)).tolist()
    beginnings = [[START, 20, 21, 22], [START, 30, 31, 32]]
    assert all(row in beginnings for row in found[::2])
    others = {tuple(row) for row in found[1::2]}
    assert {row[0] for row in others} == {START}
    assert len(others) == 8


def test_a_reply_ends_with_its_first_end_token() -> None:
    assert until_end([5, 7, 6, 7], (7, 2)) == (5, 7)
    assert until_end([5, 6], (7,)) == (5, 6)


@pytest.mark.parametrize("wrong", ["other vocabulary", "no LFM2", "no corpus", "long prompts"])
def test_what_does_not_go_together_is_one_line(
    model: Path, tmp_path: Path, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more: list[str] = []
    if wrong == "other vocabulary":
        record = json.loads((model / "corpus" / "corpus.json").read_text())
        (model / "corpus" / "corpus.json").write_text(json.dumps({**record, "vocab": 299}))
        message = "has 300 tokens and"
    elif wrong == "no LFM2":
        tiny_run.write_target(model, vocab_size=300)
        (model / "tokenizer.json").write_bytes((model / "corpus" / "tokenizer.json").read_bytes())
        message = "LlamaForCausalLM cannot go on from a corpus"
    elif wrong == "no corpus":
        more, message = ["--corpus", str(tmp_path / "none")], "holds no corpus"
    else:
        more, message = ["--prompt-tokens", "60000"], "lower --prompt-tokens 60000"
    assert main(words(model, "out", *more)) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("tfjax train continuations: error: ")
    assert message in last
