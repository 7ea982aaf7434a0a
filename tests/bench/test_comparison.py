from __future__ import annotations

import pytest

from tfjax.bench.comparison import Row, batches, first_difference
from tfjax.bench.reply import Reply


@pytest.mark.parametrize(
    ("serial", "drafted", "words"),
    [
        ("abcdef", "abXdef", "first difference at character 2: serial 'abcdef', drafted 'abXdef'"),
        ("abc", "abcd", "first difference at character 3: serial 'abc', drafted 'abcd'"),
        ("same", "same", "the tokens differ, the texts do not"),
        ("y" * 99 + "a", "y" * 99 + "b", f"character 99: serial '{'y' * 24}a', drafted '{'y' * 24}b'"),
    ],
)
def test_first_difference(serial: str, drafted: str, words: str) -> None:
    assert words in first_difference(serial, drafted)


def test_batches_take_the_kinds_in_turn() -> None:
    [greedy, drawn] = batches(["code", "chat"], 3, [0.0, 0.7], 10, 0)
    assert [(ask.kind, ask.index, ask.seed) for ask in greedy] == [("code", 0, 10), ("chat", 0, 11), ("code", 1, 12)]
    assert {ask.temperature for ask in drawn} == {0.7}
    [again] = batches(["code"], 1, [0.0, 0.7], 10, 2)
    assert (again[0].temperature, again[0].seed) == (0.7, 2010)


def test_by_depth() -> None:
    block = {"drafted": 5, "accepted": 2, "drafted_per_position": [3, 2], "accepted_per_position": [2]}
    assert Row("x", [Reply(0, 1, (), "", 9, block=block)]).by_depth() == "3/2/1 2/0/2"
    assert Row("x", [Reply(0, 1, (), "", 9)]).by_depth() == "nothing drafted"
    assert Row("x", [Reply(0, 1, (), "", 9, block={"drafted": 3})]).by_depth() == "not told"
