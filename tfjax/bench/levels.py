"""`tfjax bench concurrent`: decode rates and equality of tokens at several numbers of streams, on a running server."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfjax.bench import flags
from tfjax.bench.text import say, table
from tfjax.kinds import Integer, Number
from tfjax.parsing import CommandParser
from tfjax.terminal import FAILED, OK, run_command

if TYPE_CHECKING:
    from tfjax.bench.measure import Measured

NAME = "tfjax bench concurrent"

EPILOG = """\
A stream's rate is its tokens after the first text over the time from first to last text; "fresh" leaves out text
that repeats 64 characters of the same reply. "all" is the tokens of all streams from the first request to the last
text, "steady" the same while every stream is decoding. Equality compares the token hashes of tfjax; it is "-" where a
hash is missing. Flags have the names of `vllm bench serve` where they mean the same; --num-prompts and --request-rate
are not among them, since a cell is a fixed number of streams and not an arrival rate. Exit codes: 0 fine, 1 failed or
tokens differ, 2 wrong usage, 130 cancelled.
"""


def parser() -> CommandParser:
    """The command line."""
    result = CommandParser(
        prog=NAME,
        description="Measure a running server: kinds of prompt x temperatures x streams at once.",
        epilog=EPILOG,
    )
    flags.add_url(result)
    flags.add_work(result, tokens=256, temperatures="0,1.0", kinds="code,chat,edit")
    group = flags.add_cells(result)
    group.add_argument("--alone", action="store_true", help="make each request alone too, and compare its tokens")
    group.add_argument(
        "--serial", action="store_true", help='make each request alone with "draft": false too, and compare its tokens'
    )
    group.add_argument(
        "--stagger-ms",
        type=flags.one(Number(0, 60000).parse),
        default=0.0,
        metavar="MS",
        help="time between the starts of two streams (default: 0)",
    )
    group.add_argument(
        "--num-warmups",
        type=flags.one(Integer(0, 100).parse),
        default=1,
        metavar="N",
        help="untimed short requests of each kind before all (default: 1)",
    )
    group.add_argument(
        "--reuse-prompts",
        action="store_true",
        help="let tfjax reuse prompts of earlier requests; else first tokens are timed with whole prompts",
    )
    flags.add_report(result)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and returns the exit code."""
    made = parser()
    arguments = made.parse(argv)
    url = flags.url_of(made, arguments)
    return run_command(NAME, lambda: asyncio.run(_run(url, arguments)))


async def _run(url: str, arguments: argparse.Namespace) -> int:
    from tfjax.bench import environment
    from tfjax.bench.client import Client
    from tfjax.bench.measure import References, measure
    from tfjax.bench.work import Asker, make_cells, warm_up

    environment.check_writable([arguments.output])
    async with Client(url, api_key=arguments.api_key, timeout_s=arguments.timeout_s) as client:
        facts = await client.facts(arguments.model)
        is_tfjax = facts.capabilities is not None
        say(
            f"{client.base} serves {facts.model}" + ("" if is_tfjax else "; it is not tfjax, so equality stays unknown")
        )
        asker = Asker(
            client, facts.model, arguments.tokens, arguments.stop_at_eos, is_tfjax and not arguments.reuse_prompts
        )
        cells = make_cells(
            arguments.kinds, arguments.temperatures, arguments.levels, arguments.seed, mixed=arguments.mixed
        )
        first_asks = {ask.kind: ask for cell in cells for ask in reversed(cell.asks)}
        await warm_up(asker, list(first_asks.values()), arguments.num_warmups)
        references = References(asker, arguments.alone, arguments.serial)
        stagger_s = arguments.stagger_ms / 1000
        measured = [
            await measure(asker, cell, reps=arguments.reps, stagger_s=stagger_s, references=references, say=say)
            for cell in cells
        ]
    print(levels_table(measured))
    differ = [str(one.cell) for one in measured if False in one.equal.values()]
    for name in differ:
        print(f"tokens differ: {name}")
    environment.write_json(
        arguments.output,
        environment.report("concurrent", flags.options(arguments), arguments.label)
        | {"server": environment.server_facts(facts), "cells": [one.as_dict() for one in measured]},
    )
    return FAILED if differ else OK


def levels_table(measured: Sequence[Measured]) -> str:
    """One line per cell."""
    head = ("cell", "stream tok/s", "fresh", "all", "steady", "worst TTFT ms", "loops", "repeated", "alone", "serial")
    rows = []
    for one in measured:
        found, equal = one.summary, one.equal
        rows.append(
            (
                one.cell,
                found["stream_tps"],
                found["stream_tps_fresh"],
                found["aggregate_tps"],
                found["steady_tps"],
                found["worst_ttft_ms"],
                f"{found['looped_share']:.0%}",
                equal["repeated"],
                equal["alone"],
                equal["serial"],
            )
        )
    return table(head, rows)


if __name__ == "__main__":
    import sys

    sys.exit(main())
