"""The command line of `tfjax train answers`: numbers have limits."""

from __future__ import annotations

import pytest

from tfjax.train import main


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--tokens", "0", "'0' is not within 1"),
        ("--seed", "-1", "'-1' is not within 0"),
        ("--draws", "0", "'0' is not within 1"),
        ("--parallel", "1", "'1' is not within 2"),
        ("--limit-s", "soon", "'soon' is not a number"),
        ("--max-tokens", "1017", "1017 leaves a prompt no room in --context 1024; give at most 1016"),
    ],
)
def test_numbers_have_limits(flag: str, value: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["answers", "--output", "x", f"{flag}={value}"]) == 2
    assert f"{flag}: {message}" in capsys.readouterr().err


def test_an_output_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["answers"])
    assert end.value.code == 2
    assert "the following arguments are required: --output" in capsys.readouterr().err
