"""Markdown tables from committed results: `python -m benchmarks.tables benchmarks/results/cpu/peers.json`.

A file of `benchmarks.device` with the suite `goals` gives the table of speed goals; several such files are taken
together, the later one first asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def peers_table(facts: Mapping[str, Any]) -> str:
    """One line per comparison and prompt: median of the ratios of neighbouring runs, and their range."""
    head = ["| what | prompt | ratio | range |", "|---|---|---|---|"]
    rows = [
        f"| {row['what']} | {row['job']} | {row['median']:.2f} | {row['least']:.2f} to {row['largest']:.2f} |"
        for row in facts["ratios"]
    ]
    return "\n".join(head + rows)


def goals_of(files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the blocks of all files found; a block that one file has measured again replaces the earlier one."""
    together: dict[str, Any] = {}
    for facts in files:
        together |= facts.get("goals", {})
    return together


def main(names: Sequence[str]) -> int:
    files = [json.loads(Path(name).read_text(encoding="utf-8")) for name in names]
    for facts in files:
        if "ratios" in facts:
            print(peers_table(facts))
    with_goals = [facts for facts in files if "goals" in facts]
    if with_goals:
        from benchmarks.goals.table import table

        print(table(goals_of(with_goals)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
