"""Flags that several bench commands take, and what they mean in all of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfjax import __version__
from tfjax.bench.suite import suite
from tfjax.kinds import Integer, Number
from tfjax.parsing import CommandParser

STREAMS = Integer(1, 256)
TOKENS = Integer(2, 1 << 20)
REPS = Integer(1, 1000)
TEMPERATURE = Number(0, 100)
SEED = Integer(0, (1 << 62) - 1)


def one[T](parse: Callable[[str], T]) -> Callable[[str], T]:
    """For argparse: its error says what was wrong with the value."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} {error}") from None

    return convert


def several[T](parse: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Values with commas between, none twice."""

    def convert(text: str) -> tuple[T, ...]:
        return tuple(dict.fromkeys(one(parse)(item.strip()) for item in text.split(",")))

    return convert


def kind(text: str) -> str:
    if text not in suite():
        raise ValueError(f"is no kind of prompt; give one or more of {', '.join(suite())}")
    return text


def add_url(parser: CommandParser) -> None:
    """The server, as an argument or by vLLM's name."""
    parser.add_argument("url", nargs="?", metavar="URL", help="the server, with or without /v1")
    parser.add_argument("--base-url", metavar="URL", help="the same, as a flag")
    parser.add_argument("--model", metavar="NAME", help="model to ask for (default: the first of /v1/models)")
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        default=os.environ.get("TFJAX_API_KEY") or None,
        help="key of the server (default: the environment variable TFJAX_API_KEY)",
    )
    add_timeout(parser)


def add_timeout(parser: CommandParser) -> None:
    parser.add_argument(
        "--timeout-s",
        type=one(Number(0.1, 86400).parse),
        default=300.0,
        metavar="SECONDS",
        help="longest silence of the server (default: 300)",
    )


def url_of(parser: CommandParser, arguments: argparse.Namespace) -> str:
    """The server's URL; wrong usage ends the program."""
    url: str | None = arguments.url or arguments.base_url
    if url is None or (arguments.url and arguments.base_url):
        parser.error("give the server's URL once, such as http://127.0.0.1:8080")
    return url


def add_cells(parser: CommandParser) -> argparse._ArgumentGroup:
    """What a run is divided into. Returns the group, for what a command adds to it."""
    group = parser.add_argument_group("cells")
    group.add_argument(
        "--levels",
        "--max-concurrency",
        type=several(STREAMS.parse),
        default="1,4,8",
        metavar="N,...",
        help="streams at once (default: 1,4,8)",
    )
    group.add_argument("--reps", type=one(REPS.parse), default=3, metavar="N", help="runs of each cell (default: 3)")
    group.add_argument("--mixed", action="store_true", help="add cells in which kinds and temperatures are mixed")
    return group


def add_work(parser: CommandParser, *, tokens: int, temperatures: str, kinds: str) -> None:
    """What is asked of the server."""
    group = parser.add_argument_group("requests")
    group.add_argument(
        "--tokens",
        "--output-len",
        type=one(TOKENS.parse),
        default=tokens,
        metavar="N",
        help=f"tokens of each reply (default: {tokens})",
    )
    group.add_argument(
        "--temperatures",
        "--temperature",
        type=several(TEMPERATURE.parse),
        default=temperatures,
        metavar="T,...",
        help=f"0 is greedy (default: {temperatures})",
    )
    group.add_argument(
        "--kinds",
        type=several(kind),
        default=kinds,
        metavar="KIND,...",
        help=f"of {', '.join(suite())} (default: {kinds})",
    )
    group.add_argument(
        "--seed",
        type=one(SEED.parse),
        default=0,
        metavar="N",
        help="stream i draws with seed N + i, every time (default: 0)",
    )
    group.add_argument(
        "--stop-at-eos",
        action="store_true",
        help="let replies end where the model ends them; else ignore_eos is sent, so that all have the same length",
    )


def add_report(parser: CommandParser) -> None:
    """Where the report goes."""
    group = parser.add_argument_group("report")
    group.add_argument("--label", metavar="TEXT", help="name of this run, kept in the JSON")
    group.add_argument("--output", "--result-filename", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--version", action="version", version=f"tfjax {__version__}")


def options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was asked for, for the report; no address and no key."""
    hidden = {"url", "base_url", "api_key", "output", "plot", "label", "timeout_s"}
    return {name: value for name, value in vars(arguments).items() if name not in hidden}
