from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjax.readable_json import LINE, readable_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_it_reads_back(value: Any) -> None:
    assert json.loads(readable_json(value)) == value


def test_what_fits_a_line_stands_on_one() -> None:
    assert readable_json({"a": [1, 2], "b": {"c": None}}) == '{"a": [1, 2], "b": {"c": null}}'


@pytest.mark.parametrize("wide", [{"x": 1, "y": "z" * 150}, [[1], "z" * 160]])
def test_what_does_not_has_a_line_for_each_entry(wide: Any) -> None:
    lines = readable_json({"wide": wide}).split("\n")
    assert len(lines) == 6
    assert lines[1] == ' "wide": ' + ("{" if isinstance(wide, dict) else "[")


def test_numbers_stand_on_one_line_however_many_they_are() -> None:
    assert readable_json({"loss": list(range(LINE))}).count("\n") == 2


def test_letters_stand_as_they_are_written() -> None:
    assert readable_json({"é": ["ü" * LINE, {}]}).split("\n")[1:3] == [' "é": [', f'  "{"ü" * LINE}",']
