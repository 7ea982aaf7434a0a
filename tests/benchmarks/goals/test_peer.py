from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.blocks import Blocks
from benchmarks.goals import peer
from benchmarks.goals.peer import MEMORY_VARIABLES, Sizes, Torch, limit_memory, measure_peer
from tfjax.kernels.specs import SPECS, TINY

SIZES = Sizes.made(TINY, 1, tied=True, past=16)
WORKER = """
import json, sys
sizes, mode = json.loads(sys.argv[1]), sys.argv[2]
if mode == "broken":
    print(json.dumps({"error": "no torch"}))
elif mode == "mute":
    sys.exit(4)
else:
    print("a warning\\n" + json.dumps({"versions": {}, "hidden": sizes["hidden"]}), flush=True)
    for number, _ in enumerate(sys.stdin):
        print(json.dumps({"ms": 1e6 - number}), flush=True)
"""


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "worker.py"
    path.write_text(WORKER, "utf-8")
    monkeypatch.setattr(peer, "WORKER", path)


def test_sizes_are_those_of_the_published_model() -> None:
    assert Sizes.of("SmolLM2-135M").spec == SPECS["SmolLM2-135M"]
    assert [(Sizes.of(name).layers, Sizes.of(name).tied) for name in ("SmolLM2-135M", "Llama-3-8B")] == [
        (30, True),
        (32, False),
    ]


def test_the_other_process_is_asked_as_often_as_wanted() -> None:
    with Torch(sys.executable, SIZES, "eager") as torch:
        assert torch.hello["hidden"] == TINY.hidden
        assert [torch.ms(), torch.ms()] == [1e6, 1e6 - 1]


@pytest.mark.parametrize(("mode", "told"), [("broken", "torch peer: no torch"), ("mute", "ended with code 4")])
def test_one_that_cannot_start_says_why(mode: str, told: str) -> None:
    with pytest.raises(RuntimeError, match=told), Torch(sys.executable, SIZES, mode):
        pass


def test_ours_is_held_against_the_fastest_that_ran(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = Blocks(1e4)
    measure_peer(blocks, SIZES, "auto", sys.executable, ["eager", "broken"])
    ours: Any = blocks.found["ours"]
    least = min(pair[0] for pair in blocks.found["eager"]["pairs_ms"])
    assert ours["value"] == pytest.approx((1e6 - 2) / least)
    assert "ms (reference), torch eager" in ours["note"]
    assert blocks.failed == ["broken"]
    assert "torch eager" in capsys.readouterr().out


def test_without_torch_there_is_no_number_but_the_reason() -> None:
    blocks = Blocks(1e4)
    measure_peer(blocks, SIZES, "auto", sys.executable, ["broken"])
    assert blocks.found["ours"] == {"error": "RuntimeError: torch peer: no torch"}


def test_memory_is_left_unless_the_user_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MEMORY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    environ = peer.os.environ
    limit_memory("0.4")
    assert environ[MEMORY_VARIABLES[0]] == "0.4"
    limit_memory("0.5")
    assert environ[MEMORY_VARIABLES[0]] == "0.4"
    monkeypatch.delenv(MEMORY_VARIABLES[0])
