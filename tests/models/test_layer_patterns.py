from __future__ import annotations

import pytest

from tfjax.models.layer_patterns import Repeat, one_by_one, repeats


def words(kinds: str) -> list[tuple[str, int]]:
    return [("".join(run.pattern), run.times) for run in repeats(kinds)]


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        pytest.param("CCAC" * 10, [("CCAC", 10)], id="24B-A2B without its dense blocks"),
        pytest.param("ddAC" + "CCAC" * 9, [("ddAC", 1), ("CCAC", 9)], id="24B-A2B"),
        pytest.param("CCA" * 3 + "CA" * 3 + "C", [("CCA", 3), ("CA", 3), ("C", 1)], id="1.2B"),
        pytest.param("dCACCACCAC", [("d", 1), ("CAC", 3)], id="lfm2-moe-code"),
        ("", []),
        ("A", [("A", 1)]),
        ("AC", [("AC", 1)]),
        ("AA", [("AA", 1)]),
        ("AAAA", [("A", 4)]),
        ("CACACAC", [("CA", 3), ("C", 1)]),
        ("ABCD", [("ABCD", 1)]),
        ("xAAAAyAAAA", [("x", 1), ("A", 4), ("y", 1), ("A", 4)]),
    ],
)
def test_known_models(kinds: str, wanted: list[tuple[str, int]]) -> None:
    assert words(kinds) == wanted


@pytest.mark.parametrize(
    "kinds", ["CCAC" * 10, "ddAC" + "CCAC" * 9, "CCA" * 3 + "CA" * 3 + "C", "ABBABBABAAB", "AAABAAAB"]
)
def test_the_runs_are_the_sequence(kinds: str) -> None:
    runs = repeats(kinds)
    assert "".join("".join(run.pattern) * run.times for run in runs) == kinds
    assert sum(run.layers for run in runs) == len(kinds)
    assert sum(run.cost for run in runs) <= len(kinds)


def test_a_loop_costs_its_pattern_and_one_more() -> None:
    assert (Repeat(("C", "A"), 1).cost, Repeat(("C", "A"), 5).cost) == (2, 3)


def test_one_by_one_is_without_loops() -> None:
    assert one_by_one("CCA") == (Repeat(("C",), 1), Repeat(("C",), 1), Repeat(("A",), 1))
