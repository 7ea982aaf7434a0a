"""Tables and words of reports on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns, the first to the left and all others to the right."""
    cells = [list(head), *([word(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def word(value: object) -> str:
    """How a value reads: numbers with one place, unknown as a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def say(text: str) -> None:
    """A line of progress."""
    print(f"tfjax: {text}", file=sys.stderr, flush=True)
