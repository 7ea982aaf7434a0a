"""`tfjax train`: write replies to learn from, and train drafters on them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tfjax import __version__
from tfjax.kinds import Integer, Number
from tfjax.options import ConfigError, Kind
from tfjax.parsing import CommandParser
from tfjax.terminal import OK, CommandError, progress_on_stderr, run_command

NAME = "tfjax train"

MOST_PARALLEL = 256

type Action = Callable[[argparse.Namespace, Sequence[str]], int]

COMMANDS = {
    "replies": "a model answers prompts made from this machine's Python; the replies are kept",
    "answers": "a Llama answers the same prompts, thousands at once: more replies to learn from, sooner",
    "table": "count frequent continuations in replies: a drafter without a model",
    "small": "train a small model on replies: a drafter that runs on the device",
    "dspark": "train a DSpark drafter on replies: it reads the target's states and drafts a block at once",
    "continuations": "a small target goes on from its corpus: replies to learn from, thousands at once",
    "target": "train a small LFM2-MoE language model from nothing on this machine's Python sources",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["small"]:
        from tfjax.train.small import main as train_small

        return train_small(words[1:])
    if words[:1] == ["dspark"]:
        from tfjax.train.dspark import main as train_dspark

        return train_dspark(words[1:])
    if words[:1] == ["target"]:
        from tfjax.train.target import main as train_target

        return train_target(words[1:])
    if words[:1] == ["replies"]:
        return _run("replies", replies_parser(), words[1:], _replies)
    if words[:1] == ["continuations"]:
        from tfjax.train.continuations import main as train_continuations

        return train_continuations(words[1:])
    if words[:1] == ["answers"]:
        from tfjax.train.answers import main as train_answers

        return train_answers(words[1:])
    if words[:1] == ["table"]:
        return _run("table", table_parser(), words[1:], _table)
    parser = _parser()
    parser.parse(words)
    parser.print_help(sys.stderr)
    return 2


def _run(name: str, parser: CommandParser, words: Sequence[str], action: Action) -> int:
    arguments = parser.parse(words)
    return run_command(f"{NAME} {name}", lambda: action(arguments, words))


def _parser() -> CommandParser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {text}" for name, text in COMMANDS.items())
    parser = CommandParser(
        prog=NAME,
        usage="tfjax train [-h] COMMAND ...",
        description="Write replies to learn from, and train drafters on them.",
        epilog=f"commands:\n{listing}\n\n`tfjax train COMMAND --help` explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tfjax {__version__}")
    parser.add_argument("command", nargs="?", choices=COMMANDS, help=argparse.SUPPRESS, metavar="COMMAND")
    return parser


def replies_parser() -> CommandParser:
    """The command line of `tfjax train replies`."""
    result = CommandParser(
        prog=f"{NAME} replies",
        description="Have a model answer prompts made from the sources and documentation of this machine's Python and "
        "packages. The same versions and seed give the same replies. Started again after a kill, it goes on.",
    )
    result.add_argument("--output", metavar="DIR", type=Path, required=True, help="where the replies are kept")
    result.add_argument("--tokens", metavar="N", default="1000000", help="reply tokens in all (default: 1000000)")
    result.add_argument("--seed", metavar="N", default="1", help="decides prompts and draws (default: 1)")
    result.add_argument(
        "--model", metavar="MODEL", help="directory, GGUF file or hub id (default: SmolLM2-135M-Instruct)"
    )
    result.add_argument("--dtype", choices=("auto", "bfloat16", "float32"), default="auto", help="(default: auto)")
    result.add_argument("--parallel", metavar="N", default="32", help="replies at once, at most 256 (default: 32)")
    result.add_argument("--context", metavar="N", default="1024", help="prompt and reply at most (default: 1024)")
    result.add_argument("--max-tokens", metavar="N", default="448", help="most tokens of a reply (default: 448)")
    result.add_argument("--save-every", metavar="S", default="120", help="seconds between two files (default: 120)")
    result.add_argument(
        "--humaneval",
        metavar="FILE",
        type=Path,
        help="answer the problems of this HumanEval.jsonl.gz instead, to measure drafters on; never to train on",
    )
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def table_parser() -> CommandParser:
    """The command line of `tfjax train table`."""
    result = CommandParser(
        prog=f"{NAME} table",
        description="Count which tokens follow the last one to three in replies, keep the most useful, and measure how "
        "often they land on replies that were not counted.",
    )
    result.add_argument(
        "--replies", metavar="DIR", type=Path, required=True, action="append", help="replies to count; may be repeated"
    )
    result.add_argument(
        "--output", metavar="FILE", type=Path, required=True, help="the table; its record stands beside"
    )
    result.add_argument("--size-mib", metavar="X", default="3", help="largest size of the table (default: 3)")
    result.add_argument(
        "--evaluate", metavar="DIR", type=Path, action="append", default=[], help="measure on these replies too"
    )
    result.add_argument("--model", metavar="MODEL", help="whose replies (default: SmolLM2-135M-Instruct)")
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def number[T](arguments: argparse.Namespace, name: str, kind: Kind[T]) -> T:
    """The value of a flag that takes a number.

    Raises:
        ConfigError: it is none, or out of its limits.
    """
    text = getattr(arguments, name)
    try:
        return kind.parse(text)
    except ValueError as error:
        raise ConfigError(f"--{name.replace('_', '-')}: {text!r} {error}") from None


def _replies(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    context = number(arguments, "context", Integer(16, 1 << 24))
    max_tokens = number(arguments, "max_tokens", Integer(1, context - 8))
    tokens = number(arguments, "tokens", Integer(1, 1 << 40))
    seed = number(arguments, "seed", Integer(0, (1 << 63) - 1))
    parallel = number(arguments, "parallel", Integer(1, MOST_PARALLEL))
    save_every_s = number(arguments, "save_every", Number(0, 86_400))

    from tfjax.runtime import prepare_runtime
    from tfjax.server.logs import configure_logging

    prepare_runtime()
    configure_logging("text")
    from tfjax.train.replying import ReplySettings, write_replies

    settings = ReplySettings(
        output=arguments.output,
        tokens=tokens,
        seed=seed,
        model=arguments.model,
        dtype=arguments.dtype,
        context=context,
        max_tokens=max_tokens,
        parallel=parallel,
        save_every_s=save_every_s,
        humaneval=arguments.humaneval,
    )
    from tfjax.train.shards import UnusableReplies

    try:
        with progress_on_stderr() as progress:
            total = write_replies(settings, progress)
    except UnusableReplies as error:
        raise CommandError(str(error)) from error
    print(f"{arguments.output} holds {total} reply tokens")
    return OK


def _table(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    size_mib = number(arguments, "size_mib", Number(0.01, 256))
    from tfjax.train.shards import UnusableReplies
    from tfjax.train.table import TableSettings, summary, train_table

    settings = TableSettings(
        arguments.replies, arguments.evaluate, arguments.output, size_mib, arguments.model, tuple(words)
    )
    try:
        with progress_on_stderr() as progress:
            record = train_table(settings, progress)
    except UnusableReplies as error:
        raise CommandError(str(error)) from error
    print(summary(record))
    return OK
