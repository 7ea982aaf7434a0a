"""Files of API keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjax.api_keys import read_api_keys
from tfjax.options import ConfigError


def written(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def test_one_key_a_line(tmp_path: Path) -> None:
    file = written(tmp_path / "keys", "# for the web page\nfirst\n\n  second  \r\n#third\n")
    assert read_api_keys(file) == ("first", "second")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_others_may_not_read_it(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod 600"):
        read_api_keys(written(tmp_path / "keys", "k\n", mode))


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "holds no key"), ("# none\n\n", "holds no key"), ("ключ\n".encode(), "other characters than ASCII")],
)
def test_a_file_without_a_usable_key(tmp_path: Path, text: str | bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_api_keys(written(tmp_path / "keys", text))


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_api_keys(tmp_path / "absent")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_api_keys(tmp_path)
