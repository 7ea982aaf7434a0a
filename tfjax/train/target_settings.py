"""The command line of `tfjax train target`, as checked values."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjax import __version__
from tfjax.kinds import Integer, Number
from tfjax.options import ConfigError
from tfjax.parsing import CommandParser
from tfjax.train.small_settings import Flag, add_flags, flag_values

NAME = "tfjax train target"
TEXT, SIZE, LEARNING, RUN = "the text", "the model", "learning", "the run"
DEFAULT_STEPS = 4000


@dataclass(frozen=True, slots=True)
class Layers:
    """Numbers of layers, with commas between them."""

    metavar: str | None = "N,N,..."

    def parse(self, text: str) -> tuple[int, ...]:
        try:
            found = tuple(int(part) for part in text.split(",") if part)
        except ValueError:
            raise ValueError("is no list of layers; give numbers such as 2,5,8") from None
        return self.check(found)

    def check(self, value: tuple[int, ...]) -> tuple[int, ...]:
        if list(value) != sorted(set(value)) or any(number < 0 for number in value):
            raise ValueError("is no rising list of layers; give numbers such as 2,5,8, the first layer being 0")
        return value


FLAGS: Mapping[str, Flag] = {
    "vocab": Flag(Integer(271, 1 << 16), TEXT, 6144, "tokens, all bytes and 15 special ones among them"),
    "hidden": Flag(Integer(2, 8192), SIZE, 256, "width of the residual stream"),
    "layers": Flag(Integer(1, 128), SIZE, 10, "short convolutions but for those of --attention"),
    "attention": Flag(Layers(), SIZE, (2, 5, 8), "layers that attend, the first being 0"),
    "heads": Flag(Integer(1, 256), SIZE, 4, "query heads; hidden / heads is their width, an even number"),
    "kv_heads": Flag(Integer(1, 256), SIZE, 2, "key and value heads; heads is a multiple"),
    "dense_layers": Flag(Integer(0, 128), SIZE, 1, "first layers that have one feed-forward in place of experts"),
    "inner": Flag(Integer(1, 32768), SIZE, 1024, "width of that feed-forward"),
    "experts": Flag(Integer(1, 256), SIZE, 8, "experts of each other layer"),
    "picked": Flag(Integer(1, 256), SIZE, 2, "experts of a token"),
    "expert_inner": Flag(Integer(1, 32768), SIZE, 64, "width of an expert"),
    "taps": Flag(Integer(1, 64), SIZE, 3, "tokens that a convolution sees"),
    "context": Flag(Integer(16, 1 << 24), SIZE, 8192, "positions that config.json states"),
    "rope_theta": Flag(Number(1, 1e12), SIZE, 1_000_000.0, "base of the rotation"),
    "learning_rate": Flag(Number(1e-8, 1), LEARNING, 3e-3, "highest rate"),
    "weight_decay": Flag(Number(0, 10), LEARNING, 0.1, "AdamW's"),
    "length": Flag(Integer(8, 1 << 16), LEARNING, None, "tokens of a row (default: 1024 on a GPU, else 256)"),
    "batch": Flag(Integer(1, 1 << 16), LEARNING, None, "rows of a step (default: 64 on a GPU, else 8)"),
    "steps": Flag(Integer(1, 1 << 30), LEARNING, None, f"steps in all (default: {DEFAULT_STEPS})"),
    "minutes": Flag(Number(0.01, 1e6), LEARNING, None, "instead of --steps: as many as fit, by the time of the first"),
    "seed": Flag(Integer(0, (1 << 31) - 1), RUN, 1, "decides first weights and order"),
    "steps_per_call": Flag(Integer(1, 4096), RUN, None, "steps of one dispatch (default: 32 on a GPU, else 2)"),
    "save_every": Flag(Integer(1, 1 << 30), RUN, 1024, "steps between checkpoints, of which two are kept"),
    "limit_s": Flag(Number(0, 1e9), RUN, None, "seconds after which it saves and stops; the same command goes on"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was asked for. Numbers are those of FLAGS; None was left to the device."""

    output: Path
    corpus: Path
    also: tuple[str, ...]
    prepare_only: bool
    vocab: int
    hidden: int
    layers: int
    attention: tuple[int, ...]
    heads: int
    kv_heads: int
    dense_layers: int
    inner: int
    experts: int
    picked: int
    expert_inner: int
    taps: int
    context: int
    rope_theta: float
    learning_rate: float
    weight_decay: float
    length: int
    batch: int
    steps: int | None
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
            length=self.length or (1024 if gpu else 256),
            batch=self.batch or (64 if gpu else 8),
            steps_per_call=self.steps_per_call or (32 if gpu else 2),
        )

    def identity(self) -> dict[str, Any]:
        """What decides the numbers of a run: all but where it reads and writes, and when it stops."""
        values = dataclasses.asdict(self)
        for name in ("output", "corpus", "prepare_only", "limit_s", "save_every"):
            del values[name]
        return values


def parser() -> CommandParser:
    """The command line of `tfjax train target`."""
    result = CommandParser(
        prog=NAME,
        description="Train a small LFM2-MoE language model from nothing, on the sources of this machine's Python and "
        "of packages. Writes a model directory that can be served, training.json and loss.svg. Started again after a "
        "kill, it goes on.",
    )
    result.add_argument("--output", metavar="DIR", type=Path, required=True, help="where model and checkpoints go")
    result.add_argument(
        "--corpus",
        metavar="DIR",
        type=Path,
        help="where the text lies as tokens; made if missing (default: in --output)",
    )
    result.add_argument(
        "--also",
        metavar="PACKAGE",
        action="append",
        default=[],
        help="read this package's sources too; may be repeated",
    )
    result.add_argument("--prepare-only", action="store_true", help="make the corpus and stop")
    add_flags(result, FLAGS)
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def read_settings(arguments: argparse.Namespace) -> Settings:
    """The checked values.

    Raises:
        ConfigError: one out of its limits, or two that do not go together.
    """
    values = flag_values(arguments, FLAGS)
    for message in _contradictions(values):
        raise ConfigError(message)
    return Settings(
        output=arguments.output,
        corpus=arguments.corpus or arguments.output / "corpus",
        also=tuple(arguments.also),
        prepare_only=arguments.prepare_only,
        **values,
    )


def _contradictions(values: Mapping[str, Any]) -> list[str]:
    """What does not go together, in words."""
    found = []
    hidden, heads, layers = values["hidden"], values["heads"], values["layers"]
    if hidden % (2 * heads):
        multiple = 2 * heads
        found.append(f"--hidden: {hidden} does not give {heads} heads an even width; give a multiple of {multiple}")
    if heads % values["kv_heads"]:
        found.append(f"--kv-heads: {values['kv_heads']} does not divide --heads {heads}; give a number that does")
    if values["attention"] and values["attention"][-1] >= layers:
        found.append(f"--attention: there is no layer {values['attention'][-1]}; give numbers below --layers {layers}")
    if values["dense_layers"] > layers:
        found.append(f"--dense-layers: {values['dense_layers']} is more than --layers {layers}; give at most that")
    if values["picked"] > values["experts"]:
        found.append(f"--picked: {values['picked']} is more than --experts {values['experts']}; give at most that")
    if values["steps"] and values["minutes"]:
        found.append(f"--minutes: {values['minutes']:g} and --steps {values['steps']} exclude each other; give one")
    return found
