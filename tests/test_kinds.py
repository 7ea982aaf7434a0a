"""Each kind of value: what it takes, what it refuses and how it says so."""

from __future__ import annotations

import pytest

from tfjax.kinds import Choice, HostName, Integer, Number, Origin, Text

CHOICE = Choice({"auto": "auto", "bf16": "bfloat16", "bfloat16": "bfloat16"})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Text(), "a b", "a b"),
        (Text(visible_ascii=True), "sk-1.+/=", "sk-1.+/="),
        (Integer(0, 9), "9", 9),
        (Integer(-3, 9), "-3", -3),
        (Number(0, 2), "0.5", 0.5),
        (Number(0, 2), "2", 2.0),
        (CHOICE, "bf16", "bfloat16"),
        (CHOICE, "auto", "auto"),
        (HostName(), "0.0.0.0", "0.0.0.0"),
        (HostName(), "::1", "::1"),
        (HostName(), "gpu-box.example", "gpu-box.example"),
        (Origin(), "https://chat.example:8443", "https://chat.example:8443"),
        (Origin(), "*", "*"),
    ],
)
def test_takes(kind: Text | Integer | Number | Choice | HostName | Origin, text: str, value: object) -> None:
    assert kind.parse(text) == value
    assert kind.check(value) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Text(), "", "is empty"),
        (Text(), "  ", "is empty"),
        (Text(longest=3), "four", "longer than 3"),
        (Integer(1, 9), "0", "is not within 1 to 9; give a number in that range"),
        (Integer(1, 9, zero="take --other"), "0", "is not within 1 to 9; take --other"),
        (Integer(1, 9, zero="take --other"), "10", "is not within 1 to 9; give a number in that range"),
        (Text(), "a\x00b", "control characters"),
        (Text(visible_ascii=True), "a b", "spaces"),
        (Text(visible_ascii=True), "schlüssel", "ASCII"),
        (Integer(0, 9), "10", "0 to 9"),
        (Integer(0, 9), "-1", "0 to 9"),
        (Integer(0, 9), "1.5", "whole number"),
        (Integer(0, 9), "", "whole number"),
        (Integer(0, 9), "9" * 5000, "whole number"),
        (Number(0, 2), "nan", "0 to 2"),
        (Number(0, 2), "inf", "0 to 2"),
        (Number(0, 2), "-0.1", "0 to 2"),
        (Number(0, 2), "much", "not a number"),
        (CHOICE, "float8", "none of auto, bf16, bfloat16"),
        (HostName(), "http://x", "no host name"),
        (HostName(), "a b", "no host name"),
        (HostName(), "", "no host name"),
        (Origin(), "chat.example", "no origin"),
        (Origin(), "https://chat.example/page", "no origin"),
        (Origin(), "https://", "no origin"),
    ],
)
def test_refuses(kind: Text | Integer | Number | Choice | HostName | Origin, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        kind.parse(text)


def test_a_value_made_in_code_is_checked_too() -> None:
    with pytest.raises(ValueError, match="none of auto, bfloat16"):
        CHOICE.check("bf16")


def test_a_choice_shows_each_meaning_once() -> None:
    assert CHOICE.metavar == "{auto,bfloat16}"
