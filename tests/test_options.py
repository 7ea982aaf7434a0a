"""Declaring settings: the parser and its help come from the fields."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import pytest

from tfjax.kinds import Integer, Text
from tfjax.options import ConfigError, add_options, check_values, env_name, options, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    count: int = setting(0, "--count", "--number", kind=Integer(0, 9), group="first", help="how many; 100% of them")
    word: str | None = setting(None, "--word", kind=Text("WORD"), group="second", help="a word", positional=True)
    quiet: bool = setting(False, "--quiet", group="first", help="say less", off_flag="--loud")
    key: tuple[str, ...] = setting((), "--key", kind=Text(), group="second", help="a key", repeat=True, secret=True)


def parse(*words: str, names: set[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_options(parser, Small, names)
    return vars(parser.parse_args(words))


def test_what_is_not_given_leaves_no_attribute() -> None:
    assert parse() == {}


def test_each_spelling_reaches_its_field() -> None:
    assert parse("--count", "3") == {"count": "3"}
    assert parse("--number=3") == {"count": "3"}
    assert parse("--quiet") == {"quiet": True}
    assert parse("--loud") == {"quiet": False}
    assert parse("--key", "a", "--key", "b") == {"key": ["a", "b"]}
    assert parse("hello") == {"word": "hello"}
    assert parse("--word", "hello") == {"word_flag": "hello"}


def test_only_named_settings_are_added() -> None:
    with pytest.raises(SystemExit):
        parse("--quiet", names={"count"})
    assert parse("--count", "1", names={"count"}) == {"count": "1"}


def test_help_tells_default_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "how many; 100% of them (default: 0; env TFJAX_COUNT)" in text
    assert "say less (default: off; --loud undoes it; env TFJAX_QUIET)" in text
    assert "a key; may be repeated (default: none; env TFJAX_KEY)" in text


def test_values_are_checked_by_their_kind() -> None:
    check_values(Small(count=9, word="x", key=("a", "b")))
    with pytest.raises(ConfigError, match=r"--count: 10 is not within 0 to 9; give a number in that range"):
        check_values(Small(count=10))
    with pytest.raises(ConfigError, match="--word: '' is empty"):
        check_values(Small(word=""))


def test_a_bad_secret_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        check_values(Small(key=("fine", "bad\nsecret")))
    assert "secret" not in str(caught.value)
    assert str(caught.value).startswith("--key: ***")


def test_a_secret_is_not_in_the_repr() -> None:
    assert "hidden" not in repr(Small(key=("hidden",)))


def test_names() -> None:
    assert env_name("max_queue") == "TFJAX_MAX_QUEUE"
    assert [field.name for field, _ in options(Small)] == ["count", "word", "quiet", "key"]
