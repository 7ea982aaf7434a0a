"""ServeConfig: limits, network addresses, secrets, and that no flag is dead."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tfjax.addresses import is_loopback
from tfjax.config import ServeConfig
from tfjax.options import ConfigError, Option, options
from tfjax.serve import parser
from tfjax.setting_values import ENGINE_SETTINGS
from tfjax.sources import resolve

# One value per setting that is not its default, as it is written on the command line.
OTHER = {
    "model": "/models/other",
    "dtype": "float32",
    "weights": "packed",
    "kernels": "reference",
    "context": "1024",
    "parallel": "2",
    "prompt_cache_gib": "0.5",
    "draft_tokens": "7",
    "drafter": "/models/small",
    "drafter_depth": "3",
    "drafter_bits": "8",
    "drafter_qk_norm": "after_rope",
    "drafter_policy": "always",
    "held_drafts": "on",
    "host": "localhost",
    "port": "9000",
    "alias": "other",
    "api_key": "k1",
    "cors_origin": "https://chat.example",
    "allowed_host": "tfjax.example",
    "max_body_bytes": "2048",
    "max_queue": "3",
    "queue_wait_s": "5",
    "keep_alive_s": "6",
    "drain_s": "7",
    "log_format": "json",
}

SETTINGS = [pytest.param(field, option, id=field.name) for field, option in options(ServeConfig)]


def config(*words: str, environ: dict[str, str] | None = None) -> ServeConfig:
    return resolve(ServeConfig, parser().parse_args(words), environ or {})


@pytest.fixture
def other(tmp_path: Path) -> dict[str, str]:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    keys.chmod(0o600)
    return {**OTHER, "api_key_file": str(keys)}


@pytest.mark.parametrize(("field", "option"), SETTINGS)
def test_every_flag_changes_the_resolved_config(field: Any, option: Option, other: dict[str, str]) -> None:
    default = config().resolved()
    for flag in option.flags:
        words = [flag] if option.kind is None else [flag, other[field.name]]
        changed = config(*words).resolved()
        assert changed[field.name] != default[field.name], flag
        assert {name for name in changed if changed[name] != default[name]} == {field.name}


def test_every_action_of_the_parser_was_walked() -> None:
    flags = {flag for action in parser()._actions for flag in action.option_strings}
    known = {flag for _, option in options(ServeConfig) for flag in (*option.flags, option.off_flag) if flag}
    assert flags == known | {"-h", "--help", "--version", "--config"}


@pytest.mark.parametrize(("field", "option"), SETTINGS)
def test_every_variable_changes_the_same_as_its_flag(field: Any, option: Option, other: dict[str, str]) -> None:
    text = other.get(field.name, "1")
    words = [option.flags[0]] if option.kind is None else [option.flags[0], text]
    assert config(environ={f"TFJAX_{field.name.upper()}": text}) == config(*words)


@pytest.mark.parametrize(("field", "option"), SETTINGS)
def test_every_file_key_changes_the_same_as_its_flag(
    field: Any, option: Option, other: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "serve.toml"
    value = "true" if option.kind is None else json.dumps(other[field.name])
    file.write_text(f"{field.name.replace('_', '-')} = {value}\n")
    words = [option.flags[0]] if option.kind is None else [option.flags[0], other[field.name]]
    assert config("--config", str(file)) == config(*words)


def test_defaults_are_what_the_help_says() -> None:
    made = config()
    assert made == ServeConfig()
    assert (made.host, made.port, made.parallel, made.max_body_bytes) == ("127.0.0.1", 8080, 4, 4 * 1024 * 1024)
    assert made.changed() == {}


def test_a_drafter_and_no_drafts_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match=r"--drafter: '/models/small' cannot draft with --no-drafts.*leave one out"):
        config("--drafter", "/models/small", "--no-drafts")
    with pytest.raises(ConfigError, match="'copy' cannot draft"):
        config("--drafter", "copy", "--no-drafts")
    assert not config("--drafter", "none", "--no-drafts").drafts


def test_what_turns_drafts_off() -> None:
    assert config().drafts
    assert config("--drafter", "copy").drafts
    assert not config("--drafter", "none").drafts
    assert not config("--no-drafts").drafts


def test_depth_0_is_refused_with_what_to_give_instead() -> None:
    with pytest.raises(ConfigError, match=r"--drafter-depth: '0' .*1 to 16; give --drafter copy .*--drafter none"):
        config("--drafter-depth", "0")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_loopback_needs_no_key(host: str) -> None:
    assert is_loopback(host)
    assert config("--host", host).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gpu-box", "localhost.example", "127.0.0.1.example"])
def test_an_address_that_others_reach_needs_a_key(host: str, tmp_path: Path) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match=r"reached from other machines.*--api-key.*--insecure"):
        config("--host", host)
    assert config("--host", host, "--insecure").insecure
    assert config("--host", host, "--api-key", "k").api_key == ("k",)
    file = tmp_path / "keys"
    file.write_text("k\n")
    file.chmod(0o600)
    assert config("--host", host, "--api-key-file", str(file)).api_key_file == str(file)


def test_an_empty_key_is_no_key() -> None:
    with pytest.raises(ConfigError, match=r"--api-key: \*\*\* is empty"):
        config("--api-key", "")
    with pytest.raises(ConfigError, match=r"TFJAX_API_KEY: \*\*\* is empty"):
        config("--host", "0.0.0.0", environ={"TFJAX_API_KEY": ""})


def test_secrets_are_masked_everywhere() -> None:
    made = config("--api-key", "hunter2", "--api-key", "hunter3")
    assert made.resolved()["api_key"] == ["***", "***"]
    assert made.changed()["api_key"] == ["***", "***"]
    assert "hunter" not in repr(made)
    json.dumps(made.resolved())


def test_resolved_names_every_field() -> None:
    assert list(ServeConfig().resolved()) == [field.name for field in dataclasses.fields(ServeConfig)]


def test_made_in_code_it_is_checked_as_well() -> None:
    with pytest.raises(ConfigError, match="--parallel: 0 is not within 1 to 256"):
        ServeConfig(parallel=0)
    with pytest.raises(ConfigError, match="--dtype: 'int8' is none of auto, bfloat16, float32"):
        ServeConfig(dtype="int8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "70000"], "--port: '70000' is not within 0 to 65535"),
        (["--parallel", "0"], "--parallel: '0' is not within 1 to 256"),
        (["--context", "1"], "--context: '1' is not within 16 to 16777216"),
        (["--max-body-bytes", "67108864"], "--max-body-bytes: '67108864' is not within 1024 to 67108863"),
        (["--queue-wait-s", "nan"], "--queue-wait-s: 'nan' is not within"),
        (["--dtype", "float16"], "--dtype: 'float16' is none of auto, bfloat16, float32"),
        (["--cors-origin", "example.org"], "--cors-origin: 'example.org' is no origin"),
        (["m1", "--model", "m2"], "--model: 'm2' is given beside the argument 'm1'"),
    ],
)
def test_bad_values_name_value_limit_and_remedy(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(*words)
    assert message in str(caught.value)
    assert "give" in str(caught.value)


def test_engine_settings_are_fields() -> None:
    assert set(ENGINE_SETTINGS) <= {field.name for field in dataclasses.fields(ServeConfig)}


def test_the_parser_is_argparse_without_abbreviations() -> None:
    made = parser()
    assert isinstance(made, argparse.ArgumentParser)
    with pytest.raises(SystemExit):
        made.parse_args(["--por", "1"])
