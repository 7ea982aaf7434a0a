"""`tfjax bench exact`: drafted replies of a running server against its serial reference, token for token."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from tfjax.bench import flags
from tfjax.bench.text import say, table
from tfjax.kinds import Integer
from tfjax.parsing import CommandParser
from tfjax.terminal import FAILED, OK, CommandError, run_command

NAME = "tfjax bench exact"

EPILOG = """\
Every request is made with "draft": false, then with drafts, alone and beside others; all must have the token hash of
the first. Only tokens of rounds that verified at least one draft count, and a line with no draft or no rejected draft
counts none. Exit codes: 0 all equal, 1 failed, one differs or too few count, 2 wrong usage, 130 cancelled.
"""


def parser() -> CommandParser:
    """The command line."""
    result = CommandParser(
        prog=NAME, description="Compare drafted replies of a running server with its serial reference.", epilog=EPILOG
    )
    flags.add_url(result)
    flags.add_work(result, tokens=128, temperatures="0,1.0", kinds="code,chat,edit,list,json,unicode")
    group = result.add_argument_group("comparison")
    group.add_argument(
        "--num-prompts",
        type=flags.one(Integer(1, 10_000).parse),
        default=12,
        metavar="N",
        help="prompts, taken from the kinds in turn (default: 12)",
    )
    group.add_argument(
        "--max-concurrency",
        type=flags.one(flags.STREAMS.parse),
        default=4,
        metavar="N",
        help="drafted replies made at once the second time; 1 makes them alone only (default: 4)",
    )
    group.add_argument(
        "--reps",
        type=flags.one(flags.REPS.parse),
        default=1,
        metavar="N",
        help="times all of it is done, each with other seeds; greedy replies are made the first time only (default: 1)",
    )
    group.add_argument(
        "--least",
        type=flags.one(Integer(0, 1 << 40).parse),
        default=0,
        metavar="N",
        help="tokens that have to count for the exit code 0 (default: 0)",
    )
    flags.add_report(result)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Compares and returns the exit code."""
    made = parser()
    arguments = made.parse(argv)
    url = flags.url_of(made, arguments)
    return run_command(NAME, lambda: asyncio.run(_run(url, arguments)))


async def _run(url: str, arguments: argparse.Namespace) -> int:
    from tfjax.bench import environment
    from tfjax.bench.client import Client
    from tfjax.bench.comparison import Comparison, batches
    from tfjax.bench.work import Asker

    environment.check_writable([arguments.output])
    async with Client(url, api_key=arguments.api_key, timeout_s=arguments.timeout_s) as client:
        facts = await client.facts(arguments.model)
        asker = Asker(client, facts.model, arguments.tokens, arguments.stop_at_eos, fresh_prompts=False)
        comparison = Comparison(asker, arguments.max_concurrency)
        for rep in range(arguments.reps):
            for batch in batches(arguments.kinds, arguments.num_prompts, arguments.temperatures, arguments.seed, rep):
                await comparison.add(batch, say)
    rows = comparison.rows()
    print(
        table(
            ("replies", "made", "equal", "tokens", "drafted", "kept", "rejected", "counting"), [r.line() for r in rows]
        )
    )
    for row in rows:
        print(f"{row.name}: by depth {row.by_depth()}")
    for difference in comparison.differences:
        print(difference)
    made, equal = sum(row.made for row in rows), sum(row.equal for row in rows)
    counting = sum(row.counts.proves or 0 for row in rows)
    print(f"{equal} of {made} drafted replies equal the serial reference; {counting} counting tokens compared")
    environment.write_json(
        arguments.output,
        environment.report("exact", flags.options(arguments), arguments.label)
        | {
            "server": environment.server_facts(facts),
            "equal": equal,
            "made": made,
            "counting_tokens": counting,
            "rows": [row.as_dict() for row in rows],
            "differences": comparison.differences,
        },
    )
    if comparison.unknown:
        raise CommandError(
            f"{comparison.unknown} replies had no token hash, so nothing is proved; only tfjax sends token_sha256"
        )
    if counting < arguments.least:
        raise CommandError(
            f"{counting} tokens count and --least asks for {arguments.least}; raise --reps, --tokens or --num-prompts"
        )
    return OK if equal == made else FAILED


if __name__ == "__main__":
    import sys

    sys.exit(main())
