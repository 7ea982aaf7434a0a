"""`tfjax research`: find out about a model or drafter what its files do not say."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tfjax import __version__
from tfjax.parsing import CommandParser

NAME = "tfjax research"

COMMANDS = {"order": "whether a DSpark drafter norms queries and keys before or after RoPE, and what that is worth"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["order"]:
        from tfjax.research.order import main as research_order

        return research_order(words[1:])
    parser = _parser()
    parser.parse(words)
    parser.print_help(sys.stderr)
    return 2


def _parser() -> CommandParser:
    listing = "\n".join(f"  {name}  {text}" for name, text in COMMANDS.items())
    parser = CommandParser(
        prog=NAME,
        usage="tfjax research [-h] COMMAND ...",
        description="Find out about a model or drafter what its files do not say.",
        epilog=f"commands:\n{listing}\n\n`tfjax research COMMAND --help` explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tfjax {__version__}")
    parser.add_argument("command", nargs="?", choices=COMMANDS, help=argparse.SUPPRESS, metavar="COMMAND")
    return parser
