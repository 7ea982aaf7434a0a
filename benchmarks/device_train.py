"""A short training of a DSpark drafter by `tfjax train dspark`: steps and tokens a second, without compiling.

The material is built in: the pair's target learns nothing, and pieces of Python's library stand for its replies. One
run compiles and finds how many steps fill some seconds; two more, of as many and of three times as many, differ by
steps alone.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.blocks import Blocks
from benchmarks.exact_pair import TARGET, code_tokens
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.load import model_id
from tfjax.engine.table import vocabulary_hash
from tfjax.text.loading import load_tokenizer
from tfjax.train.dspark_run import run
from tfjax.train.dspark_settings import parser, read_settings
from tfjax.train.record import RECORD
from tfjax.train.shards import Recipe, WrittenReply, open_directory, write_shard

TRAIN_S = 120.0
STRIDE, MORE = 61, 3


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained on what.

    Attributes:
        minutes: of the run that finds the number of steps.
        replies, prompt, reply: how many replies, and tokens of each part.
        flags: of the drafter and of learning.
    """

    target: Path = TARGET
    minutes: float = 0.1
    replies: int = 512
    prompt: int = 64
    reply: int = 448
    flags: Sequence[str] = ("--length", "1024", "--max-mib", "64", "--save-every", "65536")


def measure_training(blocks: Blocks, training: Training = Training()) -> None:
    """One block."""
    blocks.run("DSpark drafter", TRAIN_S, lambda: _measured(training))


def _measured(training: Training) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        replies = write_replies(Path(folder) / "replies", training)
        start = time.perf_counter()
        first = _train(Path(folder) / "first", replies, training, "--minutes", f"{training.minutes}")
        first_s = time.perf_counter() - start
        steps = int(first["steps"]["taken"])
        walls = [
            _train(Path(folder) / f"{times}", replies, training, "--steps", f"{times * steps}") for times in (1, MORE)
        ]
    taken = [int(one["steps"]["taken"]) for one in walls]
    rate = (taken[1] - taken[0]) / max(1e-9, walls[1]["wall_s"] - walls[0]["wall_s"])
    data, batch = first["data"], first["settings"]["batch"]
    learned = batch * data["reply_tokens"] / data["rows"]
    found = {
        "steps_per_s": round(rate, 2),
        "row_tokens_per_s": round(rate * batch * data["row_tokens"]),
        "reply_tokens_per_s": round(rate * learned),
        "batch": batch,
        "row_tokens": data["row_tokens"],
        "steps": taken,
        "wall_s": [one["wall_s"] for one in walls],
        "first_run_s": round(first_s, 1),
        "drafter_parameters": first["drafter"]["parameters"],
        "loss": [walls[1]["loss_curve"][place]["loss"] for place in (0, -1)],
    }
    print(
        f"{found['steps_per_s']} steps/s of {batch} rows, {found['row_tokens_per_s']} tokens/s with padding, "
        f"{found['reply_tokens_per_s']} learned; loss {found['loss'][0]} to {found['loss'][1]} in {taken[1]} steps; "
        f"first run with compiling {first_s:.0f} s",
        flush=True,
    )
    return found


def _train(output: Path, replies: Path, training: Training, *length: str) -> dict[str, Any]:
    """The record of one run."""
    words = [str(output), "--replies", str(replies), "--model", str(training.target), *training.flags, *length]
    run(read_settings(parser().parse(words)), words)
    record: dict[str, Any] = json.loads((output / RECORD).read_text("utf-8"))
    return record


def write_replies(directory: Path, training: Training) -> Path:
    """Pieces of code, each with the next piece as its reply, in the form of `tfjax train replies`."""
    checkpoint = open_checkpoint(training.target)
    tokenizer = load_tokenizer(checkpoint)
    size = training.prompt + training.reply
    text = code_tokens(tokenizer, STRIDE * training.replies + size)
    pieces = [text[STRIDE * i : STRIDE * i + size] for i in range(training.replies)]
    written = [
        WrittenReply(i, "code", float(i % 2), tuple(piece[: training.prompt]), tuple(piece[training.prompt :]))
        for i, piece in enumerate(pieces)
    ]
    recipe = Recipe(
        model=model_id(training.target),
        vocabulary=vocabulary_hash(tokenizer),
        dtype="bfloat16",
        prompts="code",
        corpus="python",
        versions={},
        seed=0,
        context=size,
        most_new=training.reply,
    )
    open_directory(directory, recipe)
    write_shard(directory, written, tokenizer.vocab_size)
    return directory
