"""`tfjax bench`: speed and exactness of a server, measured from outside over HTTP.

Works with any OpenAI-compatible server that streams. What only tfjax tells (token hashes, drafts) is None elsewhere.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from tfjax import __version__
from tfjax.parsing import CommandParser

COMMANDS = {
    "concurrent": (
        "tfjax.bench.levels",
        "decode rates and equality at several numbers of streams, on a running server",
    ),
    "exact": ("tfjax.bench.exact", "drafted replies against the serial reference, on a running server"),
    "matrix": ("tfjax.bench.matrix", "starts servers and compares drafts on and off, or two settings or builds"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one of the commands and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in COMMANDS:
        code: int = importlib.import_module(COMMANDS[words[0]][0]).main(words[1:])
        return code
    parser = _parser()
    parser.parse(words)
    parser.print_help(sys.stderr)
    return 2


def _parser() -> CommandParser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items())
    parser = CommandParser(
        prog="tfjax bench",
        usage="tfjax bench [-h] [--version] COMMAND ...",
        description="Measure a server from outside.",
        epilog=f"commands:\n{listing}\n\n`tfjax bench COMMAND --help` explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tfjax {__version__}")
    parser.add_argument("command", nargs="?", choices=COMMANDS, help=argparse.SUPPRESS, metavar="COMMAND")
    return parser


if __name__ == "__main__":
    sys.exit(main())
