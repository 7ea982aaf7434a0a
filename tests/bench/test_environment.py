from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfjax import __version__
from tfjax.bench.client import ServerFacts
from tfjax.bench.environment import check_writable, client_facts, prompts_sha256, report, server_facts, write_json
from tfjax.terminal import CommandError

SETTINGS = {
    "model": "/srv/somebody/models/tiny",
    "drafter": "/srv/somebody/small",
    "host": "10.1.2.3",
    "port": 8080,
    "api_key": ["***"],
    "api_key_file": "/srv/somebody/keys",
    "allowed_host": ["box.example"],
    "cors_origin": [],
    "parallel": 4,
    "context": None,
}


def test_a_servers_settings_without_addresses_keys_and_folders() -> None:
    found = server_facts(ServerFacts("m", {"engine": {"dtype": "float32"}, "config": SETTINGS}))
    assert found == {
        "model": "m",
        "engine": {"dtype": "float32"},
        "settings": {"model": "tiny", "drafter": "small", "parallel": 4, "context": None},
    }
    assert server_facts(ServerFacts("m", {"engine": {}, "config": {"model": None}}))["settings"] == {"model": None}


def test_a_report_says_what_made_it() -> None:
    head = report("exact", {"tokens": 5}, "mine")
    assert (head["command"], head["label"], head["options"]) == ("tfjax bench exact", "mine", {"tokens": 5})
    assert head["prompts_sha256"] == prompts_sha256()
    assert head["made_at"].endswith("+00:00")
    assert head["client"]["versions"]["tfjax"] == __version__
    assert {"python", "jax", "httpx2"} <= set(head["client"]["versions"])
    assert head["client"]["cores"] >= 1
    assert head["client"]["processor"]
    assert client_facts()["system"]


def test_writing(tmp_path: Path) -> None:
    write_json(None, {})
    write_json(tmp_path / "r.json", {"text": "ü"})
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8")) == {"text": "ü"}
    with pytest.raises(CommandError, match=r"cannot be written \(Is a directory\); give another file"):
        write_json(tmp_path, {})


def test_a_missing_folder_is_found_before(tmp_path: Path) -> None:
    check_writable([None, tmp_path / "r.json", Path("r.json")])
    with pytest.raises(CommandError, match="absent is no directory; make it"):
        check_writable([None, tmp_path / "absent" / "r.json"])
