"""`tfjax bench matrix`: starts servers, measures two sides turn by turn, and says what each cell gains or loses."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfjax.bench import flags
from tfjax.bench.text import say, table
from tfjax.kinds import Integer, Number
from tfjax.parsing import CommandParser
from tfjax.terminal import FAILED, OK, run_command

if TYPE_CHECKING:
    from tfjax.bench.pairing import Pair
    from tfjax.bench.servers import OwnServer

NAME = "tfjax bench matrix"

EPILOG = """\
Without --compare and --builds one server is started, and each cell is run with drafts and with "draft": false. The
ratio of a cell is the median over runs of the rate of the first side over that of the second, run beside it; text
that repeats 64 characters of the same reply is left out of the rate, and the share left out is shown. Exit codes: 0
all tokens equal and no cell below --least, 1 failed, tokens differ or a cell loses, 2 wrong usage, 130 cancelled.
"""


def parser() -> CommandParser:
    """The command line."""
    result = CommandParser(
        prog=NAME,
        usage="tfjax bench matrix [MODEL] [flags]",
        description="Start servers and compare drafts on and off, two settings or two builds, cell by cell.",
        epilog=EPILOG,
    )
    result.add_argument("model", nargs="?", metavar="MODEL", help="as of tfjax serve (default: its default)")
    group = result.add_argument_group("sides")
    group.add_argument("--serve", metavar="FLAGS", default="", help="flags of tfjax serve for every server, in quotes")
    group.add_argument(
        "--compare",
        nargs=2,
        metavar=("FLAGS", "FLAGS"),
        help="two servers that differ in flags of tfjax serve, in quotes: '' '--no-drafts'",
    )
    group.add_argument(
        "--builds", nargs=2, type=Path, metavar=("PYTHON", "PYTHON"), help="two servers run by these interpreters"
    )
    group.add_argument(
        "--names",
        nargs=2,
        metavar=("NAME", "NAME"),
        help="what the report calls the sides (default: drafted plain, A B)",
    )
    group.add_argument(
        "--ready-s",
        type=flags.one(Number(0.1, 86400).parse),
        default=1800.0,
        metavar="SECONDS",
        help="longest wait for a server to be ready (default: 1800)",
    )
    flags.add_timeout(result)
    flags.add_work(result, tokens=256, temperatures="0,1.0", kinds="code,chat,edit")
    _add_cells(result)
    flags.add_report(result)
    result.add_argument("--plot", type=Path, metavar="FILE", help="write the ratios as an SVG picture")
    return result


def _add_cells(result: CommandParser) -> None:
    group = flags.add_cells(result)
    group.add_argument(
        "--num-warmups",
        type=flags.one(Integer(0, 100).parse),
        default=1,
        metavar="N",
        help="untimed short requests of each kind and side before all (default: 1)",
    )
    group.add_argument(
        "--least",
        type=flags.one(Number(0, 100).parse),
        default=0.98,
        metavar="X",
        help="a cell with a lower ratio loses (default: 0.98)",
    )


def main(argv: Sequence[str] | None = None, *, command: Sequence[str] | None = None) -> int:
    """Measures and returns the exit code. `command` runs a server instead of `python -m tfjax.serve`."""
    arguments = parser().parse(_shielded(sys.argv[1:] if argv is None else argv))
    return run_command(NAME, lambda: _run(arguments, command))


def _shielded(words: Sequence[str]) -> list[str]:
    """Puts a space before flags that are meant for a server, so that argparse does not take them for its own."""
    found = list(words)
    for flag, count in (("--compare", 2), ("--serve", 1)):
        if flag in found:
            place = found.index(flag) + 1
            found[place : place + count] = [f" {word}" for word in found[place : place + count]]
    return found


def _run(arguments: argparse.Namespace, command: Sequence[str] | None) -> int:
    from tfjax.bench import environment
    from tfjax.bench.servers import own_servers

    environment.check_writable([arguments.output, arguments.plot])
    names = _names(arguments)
    with own_servers(_wanted(arguments, names, command), arguments.ready_s, say) as servers:
        pairs, facts = asyncio.run(_measure(arguments, names, servers))
    least = arguments.least
    print(matrix_table(pairs, names, least))
    differ = [pair for pair in pairs if pair.equal is False]
    unknown = [pair for pair in pairs if pair.equal is None]
    losing = [pair for pair in pairs if pair.loses(least)]
    for words, found in (("tokens differ", differ), ("tokens could not be compared", unknown), ("loses", losing)):
        for pair in found:
            print(f"{words}: {pair.cell}")
    environment.write_json(
        arguments.output,
        environment.report("matrix", _options(arguments), arguments.label)
        | {"servers": facts, "sides": _sides(names, len(facts)), "summary": _summary(pairs, least)}
        | {"cells": [pair.as_dict(names, least) for pair in pairs]},
    )
    if arguments.plot is not None:
        environment.write_text(arguments.plot, matrix_plot(pairs, names, least, arguments.label or facts[0]["model"]))
    return FAILED if differ or unknown or losing else OK


def _names(arguments: argparse.Namespace) -> tuple[str, str]:
    if arguments.names:
        return arguments.names[0], arguments.names[1]
    return ("A", "B") if arguments.compare or arguments.builds else ("drafted", "plain")


def _wanted(
    arguments: argparse.Namespace, names: tuple[str, str], command: Sequence[str] | None
) -> list[tuple[str, Sequence[str], Sequence[str]]]:
    """Name, command and flags of each server."""
    from tfjax.bench.servers import SERVE

    # As many lanes as the largest cell has streams, so that nothing waits in the queue.
    common = [*([arguments.model] if arguments.model else []), "--parallel", str(max(arguments.levels))]
    common += shlex.split(arguments.serve)
    if not (arguments.compare or arguments.builds):
        return [("", command or SERVE, common)]
    commands = [(str(build), *SERVE[1:]) for build in arguments.builds] if arguments.builds else [command or SERVE] * 2
    own = [shlex.split(text) for text in arguments.compare or ("", "")]
    return [(name, run, [*common, *more]) for name, run, more in zip(names, commands, own, strict=True)]


async def _measure(
    arguments: argparse.Namespace, names: tuple[str, str], servers: Sequence[OwnServer]
) -> tuple[list[Pair], list[dict[str, Any]]]:
    from contextlib import AsyncExitStack

    from tfjax.bench import environment
    from tfjax.bench.client import Client
    from tfjax.bench.pairing import Side, compare
    from tfjax.bench.work import Asker, make_cells, warm_up

    async with AsyncExitStack() as stack:
        askers, facts = [], []
        for server in servers:
            client = await stack.enter_async_context(Client(server.url, timeout_s=arguments.timeout_s))
            found = await client.facts()
            facts.append(environment.server_facts(found))
            askers.append(Asker(client, found.model, arguments.tokens, arguments.stop_at_eos, fresh_prompts=True))
        ours = Side(names[0], askers[0])
        theirs = Side(names[1], askers[-1], draft=len(askers) > 1)
        cells = make_cells(
            arguments.kinds, arguments.temperatures, arguments.levels, arguments.seed, mixed=arguments.mixed
        )
        first_asks = {ask.kind: ask for cell in cells for ask in reversed(cell.asks)}
        for asker in askers:
            await warm_up(asker, list(first_asks.values()), arguments.num_warmups)
        pairs = await compare(cells, ours, theirs, reps=arguments.reps, say=say)
    return pairs, facts


def matrix_table(pairs: Sequence[Pair], names: tuple[str, str], least: float) -> str:
    """One line per cell, and their mean."""
    from tfjax.bench.pairing import mean_ratio
    from tfjax.bench.rates import looped_share

    rows: list[tuple[object, ...]] = []
    for pair in pairs:
        quartiles = pair.ratio.quartiles
        spread = "-" if quartiles is None else f"{quartiles[0]:.2f} to {quartiles[1]:.2f}"
        ratio = "-" if pair.ratio.median is None else f"{pair.ratio.median:.2f}x"
        rates = [pair.rates(runs)["stream_tps_fresh"] for runs in (pair.ours, pair.theirs)]
        loops = f"{looped_share(pair.ours[0]):.0%}"
        rows.append((pair.cell, ratio, spread, *rates, loops, pair.equal, "loses" if pair.loses(least) else ""))
    mean = mean_ratio(pairs)
    head = ("cell", f"{names[0]}/{names[1]}", "quartiles", names[0], names[1], "loops", "equal", "")
    return table(head, rows) + (f"\nmean over cells {mean:.2f}x" if mean is not None else "")


def matrix_plot(pairs: Sequence[Pair], names: tuple[str, str], least: float, label: str) -> str:
    """The ratios as an SVG document."""
    from tfjax.bench.ratio_plot import Bar, ratio_plot

    bars = [
        Bar(str(pair.cell), pair.ratio.median, *pair.ratio.quartiles)
        for pair in pairs
        if pair.ratio.median is not None and pair.ratio.quartiles is not None
    ]
    title = f"{names[0]} / {names[1]}, tokens a second of a stream: {label}"
    subtitle = f"median and quartiles of paired runs; solid line 1x, dashed line {least:g}x"
    return ratio_plot(bars, title=title, subtitle=subtitle, least=least)


def _summary(pairs: Sequence[Pair], least: float) -> dict[str, Any]:
    from tfjax.bench.measure import rounded
    from tfjax.bench.pairing import mean_ratio
    from tfjax.bench.reply import all_same

    medians = [pair.ratio.median for pair in pairs if pair.ratio.median is not None]
    return {
        "mean_ratio": rounded(mean_ratio(pairs), 4),
        "least_ratio": rounded(min(medians, default=None), 4),
        "losing_cells": [str(pair.cell) for pair in pairs if pair.loses(least)],
        "equal": all_same(pair.equal for pair in pairs),
    }


def _sides(names: tuple[str, str], servers: int) -> dict[str, Any]:
    """Which server each side asked, and whether for drafts."""
    alone = servers == 1
    return {names[0]: {"server": 0, "draft": True}, names[1]: {"server": servers - 1, "draft": not alone}}


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Without folders, which say more about a person than about a measurement."""

    def bare(text: str) -> str:
        return " ".join(Path(word).name if "/" in word else word for word in shlex.split(text))

    return flags.options(arguments) | {
        "model": arguments.model and Path(arguments.model).name,
        "serve": bare(arguments.serve),
        "compare": arguments.compare and [bare(text) for text in arguments.compare],
        "builds": arguments.builds and ["build 1", "build 2"],
    }


if __name__ == "__main__":
    sys.exit(main())
