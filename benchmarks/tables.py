"""Markdown tables from committed results: `python -m benchmarks.tables benchmarks/results/cpu/peers.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def peers_table(facts: dict[str, Any]) -> str:
    """One line per comparison and prompt: median of the ratios of neighbouring runs, and their range."""
    head = ["| what | prompt | ratio | range |", "|---|---|---|---|"]
    rows = [
        f"| {row['what']} | {row['job']} | {row['median']:.2f} | {row['least']:.2f} to {row['largest']:.2f} |"
        for row in facts["ratios"]
    ]
    return "\n".join(head + rows)


def main() -> int:
    for name in sys.argv[1:]:
        print(peers_table(json.loads(Path(name).read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
