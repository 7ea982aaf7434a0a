"""`tfjax train answers`: the command line."""

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

NAME = "tfjax train answers"
AMOUNT = "how much"

FLAGS: Mapping[str, Flag] = {
    "tokens": Flag(Integer(1, 1 << 40), AMOUNT, 4_000_000, "reply tokens in all"),
    "seed": Flag(Integer(0, (1 << 63) - 1), AMOUNT, 1, "decides prompts and draws"),
    "context": Flag(Integer(16, 1 << 24), AMOUNT, 1024, "prompt and reply at most"),
    "max_tokens": Flag(Integer(1, 1 << 24), AMOUNT, 448, "most tokens of a reply"),
    "draws": Flag(Integer(1, 1 << 16), AMOUNT, 1, "replies to each prompt; further ones at temperatures of 0.7 to 1"),
    "parallel": Flag(Integer(2, 1 << 16), AMOUNT, 2048, "replies at once; each needs a cache on the device"),
    "limit_s": Flag(Number(0, 1e9), AMOUNT, None, "seconds after which no further prompt is begun"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Writes answers and returns the exit code."""
    arguments = parser().parse(list(sys.argv[1:] if argv is None else argv))
    return run_command(NAME, lambda: _write(arguments))


def parser() -> CommandParser:
    """The command line of `tfjax train answers`."""
    result = CommandParser(
        prog=NAME,
        description="A Llama answers the prompts of `tfjax train replies`, thousands at once and with no server in "
        "between: many times faster on a GPU, for training alone. What it writes is read like those replies. Started "
        "again after a kill, it goes on.",
    )
    result.add_argument("--output", metavar="DIR", type=Path, required=True, help="where the replies are kept")
    result.add_argument(
        "--model", metavar="MODEL", help="directory, GGUF file or hub id (default: SmolLM2-135M-Instruct)"
    )
    add_flags(result, FLAGS)
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def _write(arguments: argparse.Namespace) -> int:
    values = flag_values(arguments, FLAGS)
    if values["max_tokens"] > values["context"] - 8:
        raise ConfigError(
            f"--max-tokens: {values['max_tokens']} leaves a prompt no room in --context {values['context']}; give at "
            f"most {values['context'] - 8}"
        )
    from tfjax.runtime import prepare_runtime
    from tfjax.server.logs import configure_logging

    if "jax" not in sys.modules:
        prepare_runtime()
    configure_logging("text")
    from tfjax.train.answering import AnswerSettings, write_answers
    from tfjax.train.shards import UnusableReplies

    settings = AnswerSettings(output=arguments.output, model=arguments.model, **values)
    try:
        with progress_on_stderr() as progress:
            total = write_answers(settings, progress)
    except UnusableReplies as error:
        raise CommandError(str(error)) from error
    print(f"{arguments.output} holds {total} reply tokens")
    return OK


if __name__ == "__main__":
    sys.exit(main())
