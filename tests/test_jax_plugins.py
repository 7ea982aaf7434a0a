"""What is known about jax's plugins, and how devices are found without taking this process down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjax.jax_plugins import APPLE_PLATFORMS, Plugin, advise, installed_plugins, probe_devices


def advice(*plugins: Plugin, jax: str = "0.11.2") -> list[tuple[str, str, str | None]]:
    return [(finding.state, finding.found, finding.remedy) for finding in advise(plugins, jax)]


@pytest.mark.parametrize("jax", ["0.5.1", "0.5.3", "0.10.2", "0.11.2", "0.12.0.1", "1.0"])
def test_jax_metal_breaks_newer_jax_and_the_remedy_is_named(jax: str) -> None:
    [(state, found, remedy)] = advice(Plugin("jax-metal", "0.1.1"), jax=jax)
    assert state == "failed"
    assert "jax-metal 0.1.1 works with jax <= 0.5.0 only" in found
    assert jax in found
    assert remedy == "pip uninstall jax-metal, then pip install 'tfjax[apple]'"


@pytest.mark.parametrize("jax", ["0.4.34", "0.5.0"])
def test_jax_metal_is_fine_with_old_jax(jax: str) -> None:
    [(state, found, _)] = advice(Plugin("jax-metal", "0.1.1"), jax=jax)
    assert state == "ok"
    assert "METAL" in found


@pytest.mark.parametrize(
    ("package", "platform"), [("jax-mps", "mps"), ("jax-metallib", "mps"), ("jax-graft", "mtl"), ("metaljax", "metal")]
)
def test_the_other_apple_plugins_are_recognised(package: str, platform: str) -> None:
    [(state, found, _)] = advice(Plugin(package, "1.0"))
    assert (state, platform in found) == ("ok", True)
    assert platform in APPLE_PLATFORMS


def test_metaljax_says_how_it_is_chosen() -> None:
    [(_, found, _)] = advice(Plugin("metaljax", "0.11.9"))
    assert "JAX_PLATFORMS=metal,cpu" in found


def test_two_plugins_of_one_platform_clash() -> None:
    states = advice(Plugin("jax-mps", "1"), Plugin("jax-metallib", "1"), Plugin("metaljax", "1"))
    assert [state for state, _, _ in states] == ["ok", "ok", "ok", "failed"]
    assert "both register platform mps" in states[-1][1]


def test_other_plugins_and_none() -> None:
    assert advice(Plugin("jax-cuda13-plugin", "0.11.2")) == [("ok", "jax-cuda13-plugin 0.11.2", None)]
    assert advice()[0][0] == "ok"


def test_plugins_are_found_by_entry_point_and_apples_also_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, "my_gpu", "1.5", entry_point=True)
    _install(tmp_path, "jax_metal", "0.1.1", entry_point=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = installed_plugins()
    assert Plugin("my-gpu", "1.5") in found
    assert Plugin("jax-metal", "0.1.1") in found


def _install(folder: Path, name: str, version: str, *, entry_point: bool) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if entry_point:
        (info / "entry_points.txt").write_text(f"[jax_plugins]\n{name} = {name}.plugin\n")


def answer(backend: str, total: int = 28) -> str:
    return f'print(\'{{"backend": "{backend}", "devices": ["chip"], "total": {total}}}\')'


@pytest.mark.parametrize(("backend", "kind"), [("cpu", "cpu"), *((name, "apple") for name in sorted(APPLE_PLATFORMS))])
def test_the_backend_is_named(backend: str, kind: str) -> None:
    [finding] = probe_devices("print('a warning')\n" + answer(backend))
    assert (finding.state, finding.found) == ("ok", f"chip; default backend {kind}")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("raise RuntimeError('no such platform')", "jax does not run: RuntimeError: no such platform"),
        ("import os; os.abort()", "jax does not run: "),
        ("pass", "jax does not run: exit code 0"),
        (answer("cpu") + "\nraise SystemExit(3)", "jax does not run: exit code 3"),
        (answer("mps", 27), "0 + 1 + ... + 7 gave 27 on mps"),
    ],
)
def test_a_jax_that_does_not_run_is_a_finding(code: str, found: str) -> None:
    [finding] = probe_devices(code)
    assert finding.state == "failed"
    assert finding.found.startswith(found)
    assert finding.remedy is not None


def test_a_jax_that_hangs_is_a_finding() -> None:
    [finding] = probe_devices("import time; time.sleep(60)", timeout_s=0.3)
    assert (finding.state, finding.found) == ("failed", "jax did not answer within 0.3 s")


def test_this_jax_answers() -> None:
    [finding] = probe_devices()
    assert finding.state == "ok"
