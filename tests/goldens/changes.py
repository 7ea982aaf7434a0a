"""Says what changed between two golden texts of lane traces, the serious first."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

MOST_LINES = 60
"""Lines of difference shown of one scenario."""


def parts(text: str) -> dict[str, list[str]]:
    """The scenarios of a golden text by heading."""
    found: dict[str, list[str]] = {}
    for block in text.split("== ")[1:]:
        heading, _, body = block.partition(" ==\n")
        found[heading] = body.strip("\n").split("\n")
    return found


def joined(traces: Mapping[str, str]) -> str:
    """The golden text of scenarios by heading."""
    return "\n".join(f"== {heading} ==\n{trace}\n" for heading, trace in traces.items())


def describe(before: str, now: str) -> str:
    """Nothing where both are equal; else for each changed scenario what kind of change it is, and the lines."""
    old, new = parts(before), parts(now)
    said = []
    for heading in dict.fromkeys([*old, *new]):
        if heading not in new:
            said.append(f"{heading}: gone")
        elif heading not in old:
            said.append(f"{heading}: new")
        elif old[heading] != new[heading]:
            said += [f"{heading}: {_kind(old[heading], new[heading])}", *_lines(old[heading], new[heading])]
    return "\n".join(said)


def _kind(old: list[str], new: list[str]) -> str:
    tokens = [[line for line in lines if line.startswith("tokens ")] for lines in (old, new)]
    if tokens[0] != tokens[1]:
        return "OTHER TOKENS. Drafts must never change these; only a change of the scenario itself may"
    counts = [[line for line in lines if line.startswith(("took ", "counts "))] for lines in (old, new)]
    return "same tokens, same totals, other rounds" if counts[0] == counts[1] else "same tokens, other totals"


def _lines(old: list[str], new: list[str]) -> list[str]:
    lines = list(difflib.unified_diff(old, new, "golden", "now", lineterm="", n=2))[2:]
    more = [f"    ... and {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []
    return [f"    {line}" for line in lines[:MOST_LINES]] + more
