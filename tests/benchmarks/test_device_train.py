from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.blocks import Blocks
from benchmarks.device_train import STRIDE, Training, measure_training, write_replies
from benchmarks.exact_pair import TARGET
from tests.train import tiny_run
from tests.train.dspark_run import FLAGS
from tfjax.train.dspark_settings import parser, read_settings
from tfjax.train.shards import read_replies


def test_pieces_of_code_follow_one_another(tmp_path: Path) -> None:
    training = Training(replies=3, prompt=STRIDE, reply=2 * STRIDE)
    replies = list(read_replies(write_replies(tmp_path, training)))
    assert [(len(one.prompt), len(one.reply), one.temperature) for one in replies] == [
        (STRIDE, 2 * STRIDE, float(i % 2)) for i in range(3)
    ]
    assert replies[0].reply[:STRIDE] == replies[1].prompt


def test_the_flags_are_known() -> None:
    training = Training()
    words = ["out", "--replies", "in", "--model", str(training.target), *training.flags]
    assert read_settings(parser().parse(words)).length == 1024
    assert training.target == TARGET


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_steps_and_tokens_a_second_are_measured(tmp_path: Path) -> None:
    target = tiny_run.write_target(tmp_path / "target")
    flags = (*FLAGS, "--save-every", "4096")
    blocks = Blocks(1e4)
    measure_training(blocks, Training(target, 0.02, 60, 4, 20, flags))
    found = blocks.found["DSpark drafter"]
    assert found["steps"][1] == 3 * found["steps"][0]
    assert found["row_tokens_per_s"] == pytest.approx(found["steps_per_s"] * found["batch"] * 32, rel=0.01)
    assert 0 < found["reply_tokens_per_s"] < found["row_tokens_per_s"]
