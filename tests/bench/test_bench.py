"""The command and its subcommands."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tfjax import __version__
from tfjax.bench import COMMANDS, main

HEAVY = ("jax", "numpy", "httpx2", "rich", "starlette", "tfjax.server", "tfjax.engine")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_imports_nothing_heavy(name: str) -> None:
    code = (
        "import sys\nfrom tfjax.cli import main\n"
        f"try:\n    main(['bench', {name!r}, '--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == "[]\n"
    assert done.stdout.startswith(f"usage: tfjax bench {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_version(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"tfjax {__version__}\n")


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().err
    assert all(f"  {name} " in said for name in COMMANDS)


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["concurent"])
    assert ended.value.code == 2
    assert "invalid choice: 'concurent'" in capsys.readouterr().err
