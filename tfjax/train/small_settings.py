"""The command line of `tfjax train small`, as checked values."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjax import __version__
from tfjax.kinds import Choice, Integer, Number
from tfjax.options import ConfigError, Kind
from tfjax.parsing import CommandParser

NAME = "tfjax train small"
SIZE, LEARNING, RUN = "the drafter", "learning", "the run"

HEADS = Choice({"projected": "projected", "own": "own"})
TEACHERS = Choice({"auto": "auto", "online": "online", "none": "none"})


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag's kind, heading, default and help. A default of None is chosen by the device, as the help says."""

    kind: Kind[Any]
    group: str
    default: Any
    help: str


FLAGS: Mapping[str, Flag] = {
    "layers": Flag(Integer(1, 64), SIZE, 3, "more draft better and take longer"),
    "hidden": Flag(Integer(2, 8192), SIZE, 256, "width of the residual stream"),
    "inner": Flag(Integer(1, 32768), SIZE, 768, "width of the feed-forward blocks"),
    "heads": Flag(Integer(1, 256), SIZE, 4, "query heads; hidden / heads is their width, an even number"),
    "kv_heads": Flag(Integer(1, 256), SIZE, 2, "key and value heads; heads is a multiple"),
    "draft_vocab": Flag(Integer(0, 1 << 24), SIZE, 8192, "most frequent tokens that can be drafted; 0 is all"),
    "head": Flag(HEADS, SIZE, "projected", "projected: of the target's embedding, which weighs little; own: a matrix"),
    "max_mib": Flag(Number(0.01, 1 << 20), SIZE, 6.0, "most MiB of model.safetensors; larger shapes are refused"),
    "teacher": Flag(TEACHERS, LEARNING, "auto", "online also learns the target's distributions; auto: on a GPU"),
    "teacher_weight": Flag(Number(0, 1), LEARNING, 0.9, "share of the distributions in the loss; tokens have the rest"),
    "prompt_weight": Flag(Number(0, 1), LEARNING, 0.1, "weight of a prompt's token; a reply's has 1"),
    "learning_rate": Flag(Number(1e-8, 1), LEARNING, 2e-3, "highest rate"),
    "weight_decay": Flag(Number(0, 10), LEARNING, 0.01, "AdamW's"),
    "length": Flag(Integer(16, 1 << 16), LEARNING, 512, "tokens of a packed row; longer replies are cut"),
    "batch": Flag(Integer(1, 1 << 16), LEARNING, None, "rows of a step (default: 64 on a GPU, else 8)"),
    "epochs": Flag(Number(0.001, 10_000), LEARNING, 6.0, "times that each row is seen"),
    "seed": Flag(Integer(0, (1 << 31) - 1), RUN, 1, "decides first weights and order"),
    "steps_per_call": Flag(Integer(1, 4096), RUN, None, "steps of one dispatch (default: 16 on a GPU, else 4)"),
    "save_every": Flag(Integer(1, 1 << 30), RUN, 512, "steps between checkpoints, of which two are kept"),
    "limit_s": Flag(Number(0, 1e9), RUN, None, "seconds after which it saves and stops; the same command goes on"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was asked for. Numbers are those of FLAGS; None was left to the device."""

    replies: tuple[Path, ...]
    output: Path
    measure: tuple[Path, ...]
    model: str | None
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    draft_vocab: int
    head: str
    max_mib: float
    teacher: str
    teacher_weight: float
    prompt_weight: float
    learning_rate: float
    weight_decay: float
    length: int
    batch: int
    epochs: float
    seed: int
    steps_per_call: int
    save_every: int
    limit_s: float | None

    def for_device(self, platform: str) -> Settings:
        """With the values that are the device's choice."""
        gpu = platform == "gpu"
        return dataclasses.replace(
            self,
            teacher=("online" if gpu else "none") if self.teacher == "auto" else self.teacher,
            batch=self.batch or (64 if gpu else 8),
            steps_per_call=self.steps_per_call or (16 if gpu else 4),
        )

    def identity(self) -> dict[str, Any]:
        """What decides the numbers of a run: all but where it writes, when it stops, and what is only measured."""
        values = dataclasses.asdict(self)
        for name in ("replies", "output", "measure", "max_mib", "limit_s", "save_every"):
            del values[name]
        return values


def parser() -> CommandParser:
    """The command line of `tfjax train small`."""
    result = CommandParser(
        prog=NAME,
        description="Train a small Llama to draft for a target, on replies that the target wrote. Writes "
        "model.safetensors, config.json, training.json and loss.svg. Started again after a kill, it goes on.",
    )
    result.add_argument(
        "--replies",
        metavar="DIR",
        type=Path,
        action="append",
        required=True,
        help="what `tfjax train replies` wrote; may be repeated",
    )
    result.add_argument("--output", metavar="DIR", type=Path, required=True, help="where drafter and checkpoints go")
    result.add_argument(
        "--measure",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="more replies to measure acceptance on, as those to HumanEval; may be repeated",
    )
    result.add_argument("--model", metavar="MODEL", help="the target (default: SmolLM2-135M-Instruct)")
    add_flags(result, FLAGS)
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def read_settings(arguments: argparse.Namespace) -> Settings:
    """The checked values.

    Raises:
        ConfigError: one out of its limits, or two that do not go together.
    """
    values = flag_values(arguments, FLAGS)
    if values["hidden"] % (2 * values["heads"]):
        raise ConfigError(
            f"--hidden: {values['hidden']} does not give {values['heads']} heads an even width; "
            f"give a multiple of {2 * values['heads']}"
        )
    if values["heads"] % values["kv_heads"]:
        raise ConfigError(
            f"--kv-heads: {values['kv_heads']} does not divide --heads {values['heads']}; give a number that does"
        )
    if arguments.output.resolve() in [directory.resolve() for directory in arguments.replies]:
        raise ConfigError(f"--output: {str(arguments.output)!r} is where the replies are; give another directory")
    return Settings(
        replies=tuple(arguments.replies),
        output=arguments.output,
        measure=tuple(arguments.measure),
        model=arguments.model,
        **values,
    )


def option(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def add_flags(parser: CommandParser, flags: Mapping[str, Flag]) -> None:
    """Add the flags under their headings."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for name, flag in flags.items():
        if flag.group not in groups:
            groups[flag.group] = parser.add_argument_group(flag.group)
        shown = "" if flag.default is None else f" (default: {flag.default})"
        groups[flag.group].add_argument(option(name), metavar=flag.kind.metavar, help=flag.help + shown)


def flag_values(arguments: argparse.Namespace, flags: Mapping[str, Flag]) -> dict[str, Any]:
    """The checked value of each flag.

    Raises:
        ConfigError: one out of its limits.
    """
    return {name: _value(name, flag, getattr(arguments, name)) for name, flag in flags.items()}


def _value(name: str, flag: Flag, text: str | None) -> Any:
    if text is None:
        return flag.default
    try:
        return flag.kind.parse(text)
    except ValueError as error:
        raise ConfigError(f"{option(name)}: {text!r} {error}") from None
