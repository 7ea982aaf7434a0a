"""Makes the goldens of tfjax's own behaviour anew and says what changed: `make goldens`.

lane_traces.txt holds the lane loop's rounds on scripted models, tiny_replies.json the tokens of the tiny checkpoints.
Review the difference like code: other rounds may be meant, other tokens hardly ever are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.goldens.changes import describe, joined
from tests.goldens.lane_scenarios import SCENARIOS, title
from tests.goldens.tiny_replies import VARIANTS, replies

HERE = Path(__file__).parent
TRACES = HERE / "lane_traces.txt"
REPLIES = HERE / "tiny_replies.json"


def lane_traces() -> str:
    """The golden text of the lane loop as it is now."""
    return joined({title(scenario): scenario() for scenario in SCENARIOS})


def changed_replies(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """A line for each reply that is not what it was."""
    return [
        f"{variant}: {name}: {_how(old.get(name), new.get(name))}"
        for variant in dict.fromkeys([*before, *now])
        for old, new in [(before.get(variant, {}), now.get(variant, {}))]
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def _how(old: dict[str, Any] | None, new: dict[str, Any] | None) -> str:
    if old is None or new is None:
        return "new" if old is None else "gone"
    place = next((i for i, (a, b) in enumerate(zip(old["tokens"], new["tokens"], strict=False)) if a != b), None)
    if place is None:
        return f"{len(old['tokens'])} tokens before, {len(new['tokens'])} now; or another hash"
    return f"OTHER TOKENS from number {place}: {old['tokens'][place]} before, {new['tokens'][place]} now"


def main() -> int:
    traces = lane_traces()
    before = TRACES.read_text(encoding="utf-8") if TRACES.exists() else ""
    print(describe(before, traces) or "lane traces: nothing changed")
    TRACES.write_text(traces, encoding="utf-8")
    found = {variant: replies(variant, drafts=False) for variant in VARIANTS}
    old = json.loads(REPLIES.read_text(encoding="utf-8")) if REPLIES.exists() else {}
    print("\n".join(changed_replies(old, found)) or "tiny replies: nothing changed")
    lines = [
        f' "{variant}": {{\n'
        + ",\n".join(f'  "{name}": {json.dumps(reply)}' for name, reply in by_name.items())
        + "\n }"
        for variant, by_name in found.items()
    ]
    REPLIES.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
