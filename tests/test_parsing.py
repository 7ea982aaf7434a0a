"""Wrong usage is one line."""

from __future__ import annotations

import pytest

from tfjax.parsing import CommandParser


def parser() -> CommandParser:
    made = CommandParser(prog="tfjax x")
    made.add_argument("--parallel")
    made.add_argument("--port")
    made.add_argument("model", nargs="?")
    return made


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        parser().parse(words)
    captured = capsys.readouterr()
    assert (end.value.code, captured.out) == (2, "")
    [line] = captured.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parralel", "8"], "unrecognized arguments: --parralel (did you mean --parallel?)"),
        (["--prot=8"], "unrecognized arguments: --prot=8 (did you mean --port?)"),
        (["a", "b", "--paralel"], "unrecognized arguments: b --paralel (did you mean --parallel?)"),
        (["--paral", "8"], "unrecognized arguments: --paral (did you mean --parallel?)"),
        (["--xyzzy"], "unrecognized arguments: --xyzzy"),
        (["a", "port"], "unrecognized arguments: port"),
        (["--port"], "argument --port: expected one argument"),
    ],
)
def test_wrong_usage_is_one_line_with_the_nearest_flag(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(words, capsys) == f"tfjax x: error: {said}; see tfjax x --help"


def test_right_usage_is_parsed() -> None:
    arguments = parser().parse(["m", "--port", "1"])
    assert (arguments.model, arguments.port, arguments.parallel) == ("m", "1", None)
