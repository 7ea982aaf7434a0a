from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.train.tiny_run import write_replies, write_target
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.table import load_table
from tfjax.lanes.table_drafts import TableDrafts
from tfjax.text.loading import load_tokenizer
from tfjax.train import main
from tfjax.train.cli import table_parser
from tfjax.train.shards import WrittenReply
from tfjax.train.table import HELD_OUT_EVERY, split

PHRASE = (40, 41, 42, 43, 44, 45)


def reply(index: int, temperature: float = 0.0) -> WrittenReply:
    return WrittenReply(index, "chat", temperature, (30 + index % 7, 31), PHRASE * 3)


REPLIES = [reply(index, float(index // 20 % 2)) for index in range(100)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("model") / "target")


def train(*words: str | Path) -> int:
    return main(["table", *map(str, words)])


def test_a_table_is_written_and_measured(tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replies = write_replies(tmp_path / "replies", target, REPLIES)
    problems = write_replies(tmp_path / "problems", target, [reply(4)])
    output = tmp_path / "new" / "table.safetensors"
    words = ("--replies", replies, "--evaluate", problems, "--output", output, "--model", target, "--size-mib", "0.1")
    assert train(*words) == 0
    table = load_table(output, load_tokenizer(open_checkpoint(target)))
    drafts = TableDrafts(table)
    drafts.extend([31])
    assert drafts.propose(3).tokens == PHRASE[:3]
    record = json.loads(output.with_suffix(".json").read_text())
    assert record["command"].startswith("tfjax train table --replies ")
    assert record["replies"][str(replies)]["seed"] == 1
    assert (record["counted"]["replies"], record["held_out"]["replies"]) == (95, 5)
    assert record["counted"]["tokens"] == 95 * 18
    assert record["bytes"] == output.stat().st_size <= 0.1 * 2**20
    assert record["acceptance"].keys() == {"held-out replies", "problems"}
    assert record["acceptance"]["problems"].keys() == {"greedy"}
    held_out = record["acceptance"]["held-out replies"]
    assert {part: found["table"]["tokens"] for part, found in held_out.items()} == {"greedy": 3 * 17, "sampled": 2 * 17}
    for found in held_out.values():
        assert found["table"]["landed_per_offer"][0] > 0.95
        assert found["best of both"]["tokens_per_round"] >= found["table"]["tokens_per_round"]
    assert "held-out replies, greedy, table:" in capsys.readouterr().out


def test_held_out_prompts_are_not_counted() -> None:
    counted, held_out = split(REPLIES)
    assert [one.index for one in held_out] == list(range(0, 100, HELD_OUT_EVERY))
    assert not {one.index for one in counted} & {one.index for one in held_out}
    assert len(counted) + len(held_out) == len(REPLIES)


def test_replies_of_several_directories_count_together(tmp_path: Path, target: Path) -> None:
    one = write_replies(tmp_path / "one", target, REPLIES[:50])
    two = write_replies(tmp_path / "two", target, REPLIES[50:], seed=2)
    output = tmp_path / "table.safetensors"
    assert train("--replies", one, "--replies", two, "--output", output, "--model", target) == 0
    assert json.loads(output.with_suffix(".json").read_text())["counted"]["replies"] == 95


def test_the_size_is_a_limit(tmp_path: Path, target: Path) -> None:
    random = np.random.default_rng(0)
    varied = [WrittenReply(i, "chat", 0.0, (1,), tuple(random.integers(3, 250, 60).tolist())) for i in range(40)]
    replies = write_replies(tmp_path / "replies", target, varied)
    output = tmp_path / "table.safetensors"
    assert train("--replies", replies, "--output", output, "--model", target, "--size-mib", "0.01") == 0
    assert 0.009 * 2**20 < output.stat().st_size < 0.01 * 2**20 + 1024


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("missing", "holds no replies (recipe.json"),
        ("empty", "there are no replies to count yet"),
        ("vocabulary", "whose vocabulary is another than this model's"),
        ("problems", "holds the replies to HumanEval, which measure drafters and train none"),
        ("damaged", "is no shard of replies"),
        ("evaluate", "holds no replies (recipe.json"),
    ],
)
def test_replies_that_cannot_be_used_end_in_one_line(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str], case: str, message: str
) -> None:
    replies = tmp_path / "replies"
    if case != "missing":
        changed = {"vocabulary": {"vocabulary": "other"}, "problems": {"prompts": "HumanEval 1"}}.get(case, {})
        write_replies(replies, target, [] if case == "empty" else REPLIES, **changed)
    if case == "damaged":
        next(replies.glob("shard*")).write_bytes(b"x")
    more = ("--evaluate", tmp_path / "nowhere") if case == "evaluate" else ()
    output = tmp_path / "table.safetensors"
    assert train("--replies", replies, *more, "--output", output, "--model", target) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert message in lines[0]
    assert not output.exists() or case == "evaluate"


@pytest.mark.parametrize(("size", "word"), [("0", "not within"), ("x", "not a number"), ("-1", "not within")])
def test_a_size_is_a_number(size: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--replies", "r", "--output", "o", f"--size-mib={size}") == 2
    assert f"--size-mib: '{size}' is {word}" in capsys.readouterr().err


def test_the_default_size_is_within_the_repositorys() -> None:
    assert float(table_parser().parse(["--replies", "r", "--output", "o"]).size_mib) <= 4
