from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import device
from benchmarks.blocks import Blocks


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order in which suites ran; `window` fails, and `serve` has a block that does."""
    order: list[str] = []

    def suite(name: str) -> device.Suite:
        def run(blocks: Blocks, arguments: argparse.Namespace) -> None:
            order.append(name)
            if name == "window":
                raise MemoryError("no room")
            blocks.run(f"{name} block", 0.0 if name != "serve" else 1e9, lambda: 7)

        return run

    monkeypatch.setattr(device, "SUITES", {name: suite(name) for name in device.SUITES})
    monkeypatch.setattr(device, "_device", lambda: "a device")
    return order


def stored(path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code = device.main([*words, "--output", str(path)])
    return code, json.loads(path.read_text("utf-8"))


def test_suites_run_as_asked_and_are_kept_with_the_device(ran: list[str], tmp_path: Path) -> None:
    code, facts = stored(tmp_path / "facts.json", "--suite", "train", "--suite", "shapes")
    assert (code, ran) == (0, ["train", "shapes"])
    assert facts["train"] == {"train block": 7}
    assert facts["device"] == "a device"


def test_goals_run_alone_and_leave_the_device_to_their_blocks(ran: list[str], tmp_path: Path) -> None:
    code, facts = stored(tmp_path / "facts.json", "--suite", "goals")
    assert (code, ran, facts["goals"]) == (0, ["goals"], {"goals block": 7})
    assert "device" not in facts
    with pytest.raises(SystemExit):
        stored(tmp_path / "facts.json", "--suite", "train", "--suite", "goals")
    stored(tmp_path / "facts.json")
    assert sorted(ran[1:]) == sorted(set(device.SUITES) - {"goals"})


def test_a_suite_that_fails_does_not_stop_the_next(ran: list[str], tmp_path: Path) -> None:
    code, facts = stored(tmp_path / "facts.json", "--suite", "window", "--suite", "kernels")
    assert (code, ran) == (1, ["window", "kernels"])
    assert facts["window"] == {"error": "MemoryError: no room", "failed": ["window"]}
    assert facts["kernels"] == {"kernels block": 7}


def test_a_block_without_time_is_no_failure(ran: list[str], tmp_path: Path) -> None:
    code, facts = stored(tmp_path / "facts.json", "--suite", "serve", "--seconds", "5")
    assert code == 0
    assert "5 s are left" in facts["serve"]["left_out"]["serve block"]


def test_experts_are_in_the_suite_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import device_experts, device_kernels

    measured: list[str] = []
    monkeypatch.setattr(device_kernels, "measure_kernels", lambda blocks: measured.append("products"))
    monkeypatch.setattr(device_experts, "measure_experts", lambda blocks: measured.append("experts"))
    device.SUITES["kernels"](Blocks(1.0), argparse.Namespace())
    assert measured == ["products", "experts"]
