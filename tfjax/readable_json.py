"""JSON for records that people read and repositories keep: what fits a line stands on one."""

from __future__ import annotations

import json
from typing import Any

LINE = 160
"""Most characters of an object or list on one line; lists of plain values are one line however long they are."""


def readable_json(value: Any, depth: int = 0) -> str:
    """As `json.dumps`, without a line of its own for each number. Ends without a newline."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(flat) + depth <= LINE:
        return flat
    if isinstance(value, list):
        if not any(isinstance(entry, dict | list) for entry in value):
            return flat
        entries = [readable_json(entry, depth + 1) for entry in value]
        opening, closing = "[", "]"
    else:
        entries = [
            f"{json.dumps(str(key), ensure_ascii=False)}: {readable_json(entry, depth + 1)}"
            for key, entry in value.items()
        ]
        opening, closing = "{", "}"
    inside = (",\n" + " " * (depth + 1)).join(entries)
    return f"{opening}\n{' ' * (depth + 1)}{inside}\n{' ' * depth}{closing}"
