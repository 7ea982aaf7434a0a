"""Where values come from, and which source wins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfjax.config import ServeConfig
from tfjax.options import ConfigError
from tfjax.serve import parser
from tfjax.sources import resolve, unknown_variables


def config(*words: str, environ: dict[str, str] | None = None) -> ServeConfig:
    return resolve(ServeConfig, parser().parse_args(words), environ or {})


def toml(tmp_path: Path, text: str) -> str:
    file = tmp_path / "serve.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_flag_wins_over_variable_over_file_over_default(tmp_path: Path) -> None:
    file = toml(tmp_path, "port = 1\nparallel = 1\ndraft-tokens = 1\n")
    made = config("--config", file, "--port", "3", environ={"TFJAX_PORT": "2", "TFJAX_PARALLEL": "2"})
    assert (made.port, made.parallel, made.draft_tokens, made.max_queue) == (3, 2, 1, 64)


def test_the_file_may_come_from_a_variable_and_the_flag_wins(tmp_path: Path) -> None:
    file = toml(tmp_path, "port = 1\n")
    (tmp_path / "other.toml").write_text("port = 2\n")
    assert config(environ={"TFJAX_CONFIG": file}).port == 1
    assert config("--config", str(tmp_path / "other.toml"), environ={"TFJAX_CONFIG": file}).port == 2


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("ON", True), ("0", False), ("no", False)])
def test_switches_in_the_environment(text: str, value: bool) -> None:
    assert config(environ={"TFJAX_NO_DRAFTS": text}).no_drafts is value


@pytest.mark.parametrize(
    ("variable", "flag", "name"),
    [
        ("TFJAX_NO_DRAFTS", "--drafts", "no_drafts"),
        ("TFJAX_OFFLINE", "--no-offline", "offline"),
        ("TFJAX_INSECURE", "--no-insecure", "insecure"),
        ("TFJAX_LOG_PROMPTS", "--no-log-prompts", "log_prompts"),
    ],
)
def test_a_flag_turns_off_what_the_environment_turned_on(variable: str, flag: str, name: str) -> None:
    assert getattr(config(environ={variable: "1"}), name) is True
    assert getattr(config(flag, environ={variable: "1"}), name) is False


def test_an_empty_variable_counts_as_unset() -> None:
    assert config(environ={"TFJAX_PORT": "", "TFJAX_NO_DRAFTS": "", "TFJAX_MODEL": ""}) == ServeConfig()


def test_lists() -> None:
    assert config(environ={"TFJAX_ALIAS": "a, b"}).alias == ("a", "b")
    assert config("--alias", "c", "--alias", "d", environ={"TFJAX_ALIAS": "a,b"}).alias == ("c", "d")


def test_lists_in_the_file(tmp_path: Path) -> None:
    assert config("--config", toml(tmp_path, 'alias = ["a", "b"]\napi_key = "k"\n')).alias == ("a", "b")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TFJAX_PORT": "tcp://10.0.0.1:80"}, "TFJAX_PORT: 'tcp://10.0.0.1:80' is not a whole number"),
        ({"TFJAX_NO_DRAFTS": "maybe"}, "TFJAX_NO_DRAFTS: 'maybe' is neither on nor off; write 1 or 0"),
        ({"TFJAX_ALIAS": "a,,b"}, "TFJAX_ALIAS: '' is empty"),
    ],
)
def test_bad_variables_are_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config(environ=environ)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 99999\n", "port: '99999' is not within 0 to 65535"),
        ("port = true\n", "port: True is neither text nor a number"),
        ("port = [1, 2]\n", "port: takes one value, not a list"),
        ("no-drafts = 1\n", "no-drafts: 1 is neither true nor false"),
        ("prot = 1\n", "'prot' is no setting; did you mean 'port'?"),
        ("xyzzy = 1\n", "'xyzzy' is no setting; --help lists them"),
        ("max-queue = 1\nmax_queue = 2\n", "'max_queue' stands there twice"),
        ("[endpoint]\nport = 1\n", "'endpoint' is no setting"),
        ("api_key = [{}]\n", "api_key: *** is neither text nor a number"),
        ("port =\n", "is not TOML"),
        ("port = 1\x00\n", "is not TOML"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config("--config", toml(tmp_path, text))


def test_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        config("--config", str(tmp_path / "absent.toml"))
    (tmp_path / "latin.toml").write_bytes(b'model = "\xe9"\n')
    with pytest.raises(ConfigError, match="is not TOML"):
        config("--config", str(tmp_path / "latin.toml"))


def test_fixed_values_cannot_be_set() -> None:
    arguments = parser().parse_args(["--parallel", "3"])
    assert resolve(ServeConfig, arguments, {"TFJAX_PORT": "x"}, parallel=1, port=0) == ServeConfig(parallel=1, port=0)


def test_misspelt_variables_are_found() -> None:
    environ = {"TFJAX_PROT": "1", "TFJAX_PORT": "1", "TFJAX_CONFIG": "x", "PATH": "/bin"}
    assert unknown_variables(ServeConfig, environ) == ["TFJAX_PROT"]
