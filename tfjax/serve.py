"""`tfjax serve`: an OpenAI-compatible server for one model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfjax import __version__
from tfjax.config import ServeConfig
from tfjax.options import add_options
from tfjax.parsing import CommandParser
from tfjax.sources import resolve, unknown_variables
from tfjax.terminal import run_command

if TYPE_CHECKING:
    from tfjax.engine.engine import Engine

NAME = "tfjax serve"

EPILOG = """\
A value is taken from the flag, else from the environment variable, else from the --config file, else it is the
default. Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage, 130 cancelled.
"""


def parser() -> CommandParser:
    """The command line of `tfjax serve`."""
    result = CommandParser(
        prog=NAME,
        description="Serve a language model to any OpenAI client, with drafts that never change the output.",
        epilog=EPILOG,
    )
    add_options(result, ServeConfig)
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the server until it is stopped and returns the exit code."""
    arguments = parser().parse(argv)
    return run_command(NAME, lambda: _serve(arguments))


def _serve(arguments: argparse.Namespace) -> int:
    config = resolve(ServeConfig, arguments)
    for name in unknown_variables(ServeConfig):
        _say(f"warning: {name} is no setting and has no effect; --help lists them")
    changed = ", ".join(f"{name}={value}" for name, value in config.changed().items())
    _say(f"settings: {changed or 'all defaults'}")

    from tfjax.runtime import prepare_runtime

    for line in prepare_runtime().lines():
        _say(line)

    from tfjax.server.run import run_server

    def load(progress: Callable[[str, float], None]) -> Engine:
        # jax takes seconds to import, and the port shall answer meanwhile.
        from tfjax.engine.load import load_engine

        return load_engine(config, progress)

    return run_server(config, load)


def _say(text: str) -> None:
    print(f"tfjax: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
