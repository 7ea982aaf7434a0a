"""The lane loop's rounds are those of lane_traces.txt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.goldens.changes import describe, joined, parts
from tests.goldens.lane_scenarios import SCENARIOS, title
from tests.goldens.update import TRACES

REMEDY = "If that is meant: `make goldens`, and review the difference of tests/goldens/lane_traces.txt like code."


@pytest.fixture(scope="module")
def golden() -> dict[str, list[str]]:
    return parts(TRACES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=title)
def test_rounds(scenario: Callable[[], str], golden: dict[str, list[str]]) -> None:
    name = title(scenario)
    before = {name: "\n".join(golden[name])} if name in golden else {}
    changed = describe(joined(before), joined({name: scenario()}))
    assert not changed, f"\n{changed}\n{REMEDY}"


def test_no_golden_is_left_over(golden: dict[str, list[str]]) -> None:
    assert list(golden) == [title(scenario) for scenario in SCENARIOS]
