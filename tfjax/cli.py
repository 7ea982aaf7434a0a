"""The `tfjax` command: hands over to one module per subcommand, importing only that one."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from tfjax import __version__
from tfjax.parsing import CommandParser

COMMANDS = {
    "serve": "serve a model to any OpenAI client",
    "generate": "continue one prompt and print the text",
    "info": "what a model is, how many parameters it has and what memory it takes",
    "quantize": "pack a model's or drafter's weights into 2 to 8 bits, as MLX stores them",
    "bench": "measure speed and exactness of a server",
    "train": "write replies to learn from, and train drafters on them",
    "research": "find out about a model or drafter what its files do not say",
    "doctor": "check versions, devices, caches and the arithmetic",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in COMMANDS:
        code: int = importlib.import_module(f"tfjax.{words[0]}").main(words[1:])
        return code
    parser = _parser()
    parser.parse(words)
    parser.print_help(sys.stderr)
    return 2


def _parser() -> CommandParser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {text}" for name, text in COMMANDS.items())
    parser = CommandParser(
        prog="tfjax",
        usage="tfjax [-h] [--version] COMMAND ...",
        description="An LLM server on JAX whose speculative decoding never changes the output.",
        epilog=f"commands:\n{listing}\n\n`tfjax COMMAND --help` explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tfjax {__version__}")
    parser.add_argument("command", nargs="?", choices=COMMANDS, help=argparse.SUPPRESS, metavar="COMMAND")
    return parser


if __name__ == "__main__":
    sys.exit(main())
