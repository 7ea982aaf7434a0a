"""`tfjax doctor`: what it looks at and how it says it."""

from __future__ import annotations

import json
import sys
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace

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


def test_the_self_test_reports_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: SimpleNamespace())
    for passed, state in ((True, "ok"), (False, "failed")):
        report = SimpleNamespace(passed=passed, text="rows 2..512 equal single rows")
        monkeypatch.setitem(sys.modules, "tfjax.engine.probe", SimpleNamespace(self_test=lambda report=report: report))
        finding = doctor.self_test()
        assert (finding.state, finding.found) == (state, report.text)
        assert (finding.remedy is None) is passed


def test_no_self_test_where_jax_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "probe_devices", lambda: iter([FAILED]))
    monkeypatch.setattr(doctor, "self_test", lambda: pytest.fail("ran on a broken jax"))
    monkeypatch.setattr(doctor, "default_model", lambda: OK)
    found = list(doctor.examine())
    assert FAILED in found
    assert found[0].what == "python"


def test_a_default_model_that_is_not_here_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from tfjax.checkpoints import CheckpointError, resolve

    def absent(name: str | None, *, offline: bool, progress: object) -> Path:
        assert (name, offline) == (None, True)
        raise CheckpointError("SmolLM2", "not found", remedy="pip install it")

    monkeypatch.setattr(resolve, "resolve_model", absent)
    finding = doctor.default_model()
    assert finding.state == "warning"
    assert "pip install it" in (finding.remedy or "")
