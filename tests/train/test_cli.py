from __future__ import annotations

import pytest

from tfjax.train import cli, main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["replies"], "the following arguments are required: --output"),
        (["table", "--output", "x"], "the following arguments are required: --replies"),
        (["replies", "--output", "x", "--token", "5"], "--token 5 (did you mean --tokens?)"),
        (["replies", "--output", "x", "--dtype", "int8"], "invalid choice: 'int8'"),
        (["something"], "invalid choice: 'something'"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--tokens", "0", "is not within 1"),
        ("--tokens", "many", "is not a whole number"),
        ("--parallel", "257", "is not within 1 to 256"),
        ("--seed", "-1", "is not within 0"),
        ("--context", "8", "is not within 16"),
        ("--max-tokens", "1017", "is not within 1 to 1016"),
        ("--save-every", "-1", "is not within 0"),
    ],
)
def test_numbers_have_limits(flag: str, value: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replies", "--output", "x", f"{flag}={value}"]) == 2
    assert f"{flag}: '{value}' {message}" in capsys.readouterr().err


def test_no_words_print_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr().err
    assert all(name in printed and text in printed for name, text in cli.COMMANDS.items())


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert f"usage: tfjax train {name}" in capsys.readouterr().out


def test_small_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("tfjax.train.small.main", lambda words: seen.append(words) or 7)
    assert main(["small", "--x"]) == 7
    assert seen == [["--x"]]


def test_target_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("tfjax.train.target.main", lambda words: seen.append(words) or 7)
    assert main(["target", "--x"]) == 7
    assert seen == [["--x"]]
