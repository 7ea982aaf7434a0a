"""`tfjax serve`: what it hands to the server, and what it says before."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tfjax import runtime, serve
from tfjax.config import ServeConfig
from tfjax.runtime import Runtime

Load = Callable[[Callable[[str, float], None]], Any]


class Server:
    """Stands for tfjax.server.run: keeps what it was called with."""

    def __init__(self, answer: int = 0) -> None:
        self.answer = answer
        self.calls: list[tuple[ServeConfig, Load]] = []

    def run_server(self, config: ServeConfig, load: Load) -> int:
        self.calls.append((config, load))
        return self.answer


@pytest.fixture(autouse=True)
def prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Runtime(Path("cache"), {}, ("JAX_ENABLE_X64=1",))
    monkeypatch.setattr(runtime, "prepare_runtime", lambda: made)


def serving(monkeypatch: pytest.MonkeyPatch, answer: int = 0) -> Server:
    server = Server(answer)
    module = ModuleType("tfjax.server.run")
    module.run_server = server.run_server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tfjax.server.run", module)
    return server


@pytest.mark.parametrize("code", [0, 1, 130])
def test_the_server_gets_the_settings_and_its_answer_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    server = serving(monkeypatch, code)
    assert serve.main(["model.gguf", "--port", "0", "--parallel", "2"]) == code
    [(config, _)] = server.calls
    assert config == ServeConfig(model="model.gguf", port=0, parallel=2)


def test_load_gives_the_engine_for_these_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving(monkeypatch)
    serve.main(["model.gguf"])
    [(config, load)] = server.calls
    loader = SimpleNamespace(load_engine=lambda *arguments: arguments)
    monkeypatch.setitem(sys.modules, "tfjax.engine.load", loader)

    def progress(phase: str, fraction: float) -> None:
        pass

    assert load(progress) == (config, progress)


def test_the_port_may_open_before_jax_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving(monkeypatch)
    monkeypatch.setitem(sys.modules, "tfjax.engine.load", None)
    assert serve.main([]) == 0
    with pytest.raises(ImportError):
        server.calls[0][1](lambda phase, fraction: None)


def test_it_says_what_it_was_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    serving(monkeypatch)
    monkeypatch.setenv("TFJAX_PROT", "1")
    serve.main(["--port", "0", "--api-key", "hunter2"])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "tfjax: warning: TFJAX_PROT is no setting and has no effect; --help lists them",
        "tfjax: settings: port=0, api_key=['***']",
        "tfjax: compile cache: cache",
        "tfjax: ignored, as they would change the tokens: JAX_ENABLE_X64=1",
    ]


def test_all_defaults_are_said_in_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    serving(monkeypatch)
    serve.main([])
    assert "tfjax: settings: all defaults" in capsys.readouterr().err
