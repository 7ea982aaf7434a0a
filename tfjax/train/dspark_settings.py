"""The command line of `tfjax train dspark`, as checked values."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjax import __version__
from tfjax.kinds import Choice, Integer, Number
from tfjax.options import ConfigError
from tfjax.parsing import CommandParser
from tfjax.train.small_settings import Flag, add_flags, flag_values

NAME = "tfjax train dspark"
SIZE, LEARNING, RUN = "the drafter", "learning", "the run"


@dataclass(frozen=True, slots=True)
class Taps:
    """How many of the target's layers are tapped, spread evenly, or which: numbers with commas between them."""

    metavar: str | None = "N|I,I,..."

    def parse(self, text: str) -> int | tuple[int, ...]:
        try:
            numbers = tuple(int(part) for part in text.split(",") if part)
        except ValueError:
            numbers = ()
        if not numbers:
            raise ValueError("is neither a count nor layers such as 1,14,27; give one of them")
        return self.check(numbers if "," in text else numbers[0])

    def check(self, value: int | tuple[int, ...]) -> int | tuple[int, ...]:
        if isinstance(value, int):
            return Integer(1, 64).check(value)
        if min(value) < 0 or len(set(value)) < len(value):
            raise ValueError("has a layer twice or below 0; give each layer once, from 0")
        return value


def _choice(*words: str) -> Choice:
    return Choice({word: word for word in words})


FLAGS: Mapping[str, Flag] = {
    "layers": Flag(Integer(1, 16), SIZE, 1, "more draft better and take longer"),
    "inner": Flag(Integer(1, 32768), SIZE, 768, "width of the feed-forward blocks"),
    "taps": Flag(Taps(), SIZE, 3, "the target's layers that are read: how many, or which (counted from 0)"),
    "block": Flag(Integer(1, 31), SIZE, 7, "drafts of one forward"),
    "markov_rank": Flag(Integer(1, 4096), SIZE, 64, "width of the head that reads the token before"),
    "markov_head": Flag(_choice("vanilla", "gated", "rnn"), SIZE, "vanilla", "its kind"),
    "draft_vocab": Flag(Integer(0, 1 << 24), SIZE, 8192, "most frequent tokens that can be drafted; 0 is all"),
    "qk_norm_order": Flag(
        _choice("before_rope", "after_rope", "none"), SIZE, "before_rope", "where queries and keys are normed"
    ),
    "rope": Flag(
        _choice("auto", "interleaved", "half-split"), SIZE, "auto", "how rotation pairs; auto: as published drafters"
    ),
    "mask_token": Flag(Integer(0, 1 << 24), SIZE, None, "token that marks a draft (default: an unused special one)"),
    "bits": Flag(_choice("16", "8"), SIZE, "16", "of a stored weight; 8 is MLX's form"),
    "sharpen": Flag(Number(0.1, 10), SIZE, 1.0, "the file's drafts have so many times the trained logits"),
    "max_mib": Flag(Number(0.01, 1 << 20), SIZE, 6.0, "most MiB of model.safetensors; larger shapes are refused"),
    "cross": Flag(Number(0, 100), LEARNING, 0.1, "weight of the reply's token"),
    "distance": Flag(Number(0, 100), LEARNING, 0.9, "weight of the distance from the target's distribution"),
    "divergence": Flag(Number(0, 100), LEARNING, 0.0, "weight of the divergence from the target's distribution"),
    "coupling": Flag(Number(0, 100), LEARNING, 0.0, "weight of the chance that drafts drawn as served are not kept"),
    "compare_at": Flag(
        _choice("reply", "one"), LEARNING, "one", "temperature of the distributions: each drawn reply's own, or 1"
    ),
    "greedy_temperature": Flag(Number(0.01, 100), LEARNING, 1.0, "the same where the reply is greedy"),
    "confidence": Flag(Number(0, 100), LEARNING, 1.0, "weight of the confidence head"),
    "confidence_target": Flag(
        _choice("overlap", "greedy", "kept"),
        LEARNING,
        "overlap",
        "what it learns: overlap of distributions, equal picks, or the chance to be kept",
    ),
    "decay": Flag(Number(0.1, 1000), LEARNING, 4.0, "drafts after which a place weighs 1/e"),
    "learning_rate": Flag(Number(1e-8, 1), LEARNING, 1e-3, "highest rate"),
    "norm_rate": Flag(Number(0, 10_000), LEARNING, 1.0, "the rate of q_norm and k_norm is multiplied with it"),
    "length": Flag(Integer(16, 1 << 16), LEARNING, 1024, "tokens of a packed row; longer replies are cut"),
    "batch": Flag(Integer(1, 1 << 16), LEARNING, None, "rows of a step (default: 16 on a GPU, else 4)"),
    "anchors": Flag(Integer(1, 1 << 16), LEARNING, 64, "blocks drafted in each row, at random places"),
    "steps": Flag(Integer(1, 1 << 30), RUN, 2000, "steps in all"),
    "minutes": Flag(Number(0.01, 1e6), RUN, None, "steps are as many as take this long, once compiled"),
    "seed": Flag(Integer(0, (1 << 31) - 1), RUN, 1, "decides first weights, order and places"),
    "steps_per_call": Flag(Integer(1, 4096), RUN, None, "steps of one dispatch (default: 16 on a GPU, else 4)"),
    "save_every": Flag(Integer(1, 1 << 30), RUN, 512, "steps between checkpoints, of which two are kept"),
    "limit_s": Flag(Number(0, 1e9), RUN, None, "seconds after which it saves and stops; the same command goes on"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was asked for. Numbers are those of FLAGS; None was left to the device or the target."""

    output: Path
    replies: tuple[Path, ...]
    held_out: tuple[Path, ...]
    model: str | None
    start_from: Path | None
    layers: int
    inner: int
    taps: int | tuple[int, ...]
    block: int
    markov_rank: int
    markov_head: str
    draft_vocab: int
    qk_norm_order: str
    rope: str
    mask_token: int | None
    bits: str
    sharpen: float
    max_mib: float
    cross: float
    distance: float
    divergence: float
    coupling: float
    compare_at: str
    greedy_temperature: float
    confidence: float
    confidence_target: str
    decay: float
    learning_rate: float
    norm_rate: float
    length: int
    batch: int
    anchors: int
    steps: int
    minutes: float | None
    seed: int
    steps_per_call: int
    save_every: int
    limit_s: float | None

    def for_device(self, platform: str) -> Settings:
        """With the values that are the device's choice."""
        gpu = platform == "gpu"
        return dataclasses.replace(
            self,
            batch=self.batch or (16 if gpu else 4),
            steps_per_call=self.steps_per_call or (16 if gpu else 4),
        )

    def identity(self) -> dict[str, Any]:
        """What decides the numbers of a run: all but where and how it writes, when it stops, and what is measured.

        Of what is read, replies and a drafter to start from, the contents count and not the paths.
        """
        values = dataclasses.asdict(self)
        written = ("output", "bits", "max_mib", "sharpen", "save_every", "limit_s")
        for name in ("replies", "held_out", "start_from", *written):
            del values[name]
        if self.minutes is not None:
            del values["steps"]
        return values


def parser() -> CommandParser:
    """The command line of `tfjax train dspark`."""
    result = CommandParser(
        prog=NAME,
        description="Train a DSpark drafter for a target, on replies that the target wrote. Writes model.safetensors, "
        "config.json, training.json and plots of loss, acceptance and calibration. Started again after a kill, it "
        "goes on.",
    )
    result.add_argument("output", metavar="OUT", type=Path, help="where drafter and checkpoints go")
    result.add_argument(
        "--replies",
        metavar="DIR",
        type=Path,
        nargs="+",
        action="extend",
        required=True,
        help="what `tfjax train replies` wrote; a fiftieth of the prompts is held out and measured on",
    )
    result.add_argument(
        "--held-out",
        metavar="DIR",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        help="replies only to measure on, as those to HumanEval",
    )
    result.add_argument("--model", metavar="MODEL", help="the target (default: SmolLM2-135M-Instruct)")
    result.add_argument(
        "--start-from",
        metavar="FILE",
        type=Path,
        help="model.safetensors of a drafter of the same shapes to go on from (default: begin with random weights)",
    )
    add_flags(result, FLAGS)
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def read_settings(arguments: argparse.Namespace) -> Settings:
    """The checked values.

    Raises:
        ConfigError: one out of its limits, or two that do not go together.
    """
    values = flag_values(arguments, FLAGS)
    if not values["cross"] + values["distance"] + values["divergence"] + values["coupling"]:
        raise ConfigError(
            "--cross, --distance, --divergence and --coupling are all 0, so drafts learn nothing; raise one of them"
        )
    if values["anchors"] > values["length"]:
        raise ConfigError(
            f"--anchors: {values['anchors']} are more than the {values['length']} tokens of a row; lower it"
        )
    if arguments.minutes is not None and arguments.steps is not None:
        raise ConfigError("--steps and --minutes both say how long to train; give one of them")
    if arguments.output.resolve() in [directory.resolve() for directory in arguments.replies]:
        raise ConfigError(f"OUT: {str(arguments.output)!r} is where the replies are; give another directory")
    return Settings(
        output=arguments.output,
        replies=tuple(arguments.replies),
        held_out=tuple(arguments.held_out),
        model=arguments.model,
        start_from=arguments.start_from,
        **values,
    )
