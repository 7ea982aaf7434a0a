from __future__ import annotations

from tfjax.bench.text import table, word


def test_words() -> None:
    assert [word(value) for value in (None, True, False, 1.25, 3, "x")] == ["-", "yes", "NO", "1.2", "3", "x"]


def test_a_table_is_aligned() -> None:
    assert table(("name", "n"), [("a", 1.0), ("longer", None)]) == "name      n\na       1.0\nlonger    -"
