from __future__ import annotations

from typing import Any

import pytest

from tests.goldens.changes import MOST_LINES, describe, joined, parts
from tests.goldens.update import changed_replies

HEAD = "took 5.0 ms, 2 rounds\ncounts a: rounds 2, drafted 1, accepted 1, kept 2, aside 0, probes 0\ntokens a: 1 2\n"
ROUNDS = "0.0 ms\n  verify a@6 [0]\n2.5 ms\n  verify a@7 [1 + 2]"


def test_parts_and_joined_are_each_others_inverse() -> None:
    text = joined({"one": HEAD + ROUNDS, "two": ROUNDS})
    assert parts(text) == {"one": (HEAD + ROUNDS).split("\n"), "two": ROUNDS.split("\n")}
    assert parts("") == {}


def test_nothing_changed() -> None:
    assert describe(joined({"one": HEAD}), joined({"one": HEAD})) == ""


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("tokens a: 1 2", "tokens a: 1 3", "one: OTHER TOKENS. Drafts must never change these"),
        ("accepted 1", "accepted 0", "one: same tokens, other totals"),
        ("took 5.0", "took 6.0", "one: same tokens, other totals"),
        ("@7 [1 + 2]", "@7 [1]", "one: same tokens, same totals, other rounds"),
    ],
)
def test_the_kind_of_change(old: str, new: str, kind: str) -> None:
    text = HEAD + ROUNDS
    said = describe(joined({"one": text}), joined({"one": text.replace(old, new)})).splitlines()
    assert said[0].startswith(kind)
    assert any(line.startswith("    -") and old in line for line in said)
    assert any(line.startswith("    +") and new in line for line in said)


def test_scenarios_that_come_and_go() -> None:
    assert describe(joined({"old": HEAD}), joined({"new": HEAD})) == "old: gone\nnew: new"


def test_a_long_difference_is_cut() -> None:
    said = describe(joined({"one": "a\n" * 200}), joined({"one": "b\n" * 200})).splitlines()
    assert len(said) == 1 + MOST_LINES + 1
    assert said[-1].endswith("lines more")


def reply(*tokens: int) -> dict[str, Any]:
    return {"tokens": list(tokens), "sha256": str(tokens)}


def test_changed_replies() -> None:
    before = {"tied": {"x": reply(1, 2, 3), "y": reply(4), "gone": reply(5)}}
    now = {"tied": {"x": reply(1, 9, 3), "y": reply(4), "new": reply(5)}, "mha": {"x": reply(1)}}
    assert changed_replies(before, now) == [
        "tied: x: OTHER TOKENS from number 1: 2 before, 9 now",
        "tied: gone: gone",
        "tied: new: new",
        "mha: x: new",
    ]
    assert changed_replies({"tied": {"x": reply(1, 2)}}, {"tied": {"x": reply(1)}}) == [
        "tied: x: 2 tokens before, 1 now; or another hash"
    ]
