"""`tfjax train continuations`: the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfjax import __version__
from tfjax.kinds import Integer, Number
from tfjax.options import ConfigError
from tfjax.parsing import CommandParser
from tfjax.terminal import OK, CommandError, progress_on_stderr, run_command
from tfjax.train.small_settings import Flag, add_flags, flag_values

NAME = "tfjax train continuations"
AMOUNT = "how much"
TEMPERATURE = Number(0, 100)

FLAGS: Mapping[str, Flag] = {
    "tokens": Flag(Integer(1, 1 << 40), AMOUNT, 2_000_000, "reply tokens in all"),
    "seed": Flag(Integer(0, (1 << 31) - 1), AMOUNT, 1, "decides prompts and draws"),
    "prompt_tokens": Flag(Integer(1, 1 << 16), AMOUNT, 64, "most tokens of a prompt"),
    "max_tokens": Flag(Integer(1, 1 << 16), AMOUNT, 448, "most tokens of a reply"),
    "parallel": Flag(Integer(1, 1 << 16), AMOUNT, 1024, "replies at once; each lot is a file"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Writes continuations and returns the exit code."""
    arguments = parser().parse(list(sys.argv[1:] if argv is None else argv))
    return run_command(NAME, lambda: _write(arguments))


def parser() -> CommandParser:
    """The command line of `tfjax train continuations`."""
    result = CommandParser(
        prog=NAME,
        description="A model of `tfjax train target` goes on from pieces of its corpus, with no server in between. "
        "What it writes is read like the replies of `tfjax train replies`. Started again after a kill, it goes on.",
    )
    result.add_argument("--model", metavar="DIR", type=Path, required=True, help="what `tfjax train target` wrote")
    result.add_argument("--corpus", metavar="DIR", type=Path, help="what it was trained on (default: in --model)")
    result.add_argument("--output", metavar="DIR", type=Path, required=True, help="where the replies are kept")
    result.add_argument(
        "--held-out", action="store_true", help="go on from text that was not learned, to measure drafters on"
    )
    result.add_argument(
        "--temperatures",
        metavar="X",
        nargs="+",
        help="each reply takes one of these by chance; 0 is greedy, and one given twice is taken twice as often "
        "(default: 0 0 0.8 1)",
    )
    add_flags(result, FLAGS)
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def _write(arguments: argparse.Namespace) -> int:
    values = flag_values(arguments, FLAGS)
    temperatures = _temperatures(arguments.temperatures)
    from tfjax.runtime import prepare_runtime

    if "jax" not in sys.modules:
        prepare_runtime()
    from tfjax.train.continuing import TEMPERATURES, ContinueSettings, write_continuations
    from tfjax.train.corpus_tokens import UnusableCorpus
    from tfjax.train.shards import UnusableReplies

    settings = ContinueSettings(
        output=arguments.output,
        model=arguments.model,
        corpus=arguments.corpus or arguments.model / "corpus",
        held_out=arguments.held_out,
        temperatures=temperatures or TEMPERATURES,
        **values,
    )
    try:
        with progress_on_stderr() as progress:
            total = write_continuations(settings, progress)
    except (UnusableCorpus, UnusableReplies) as error:
        raise CommandError(str(error)) from error
    print(f"{arguments.output} holds {total} reply tokens")
    return OK


def _temperatures(words: Sequence[str] | None) -> tuple[float, ...]:
    """The checked values; () where none are given.

    Raises:
        ConfigError: one is no number, or out of its limits.
    """
    try:
        return tuple(TEMPERATURE.parse(word) for word in words or ())
    except ValueError as error:
        raise ConfigError(f"--temperatures: one of {' '.join(words or ())} {error}") from None


if __name__ == "__main__":
    sys.exit(main())
