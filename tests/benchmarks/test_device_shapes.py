from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks import device_shapes
from benchmarks.blocks import Blocks
from benchmarks.device_shapes import DEPTHS, ROWS, STREAMS, measure_shapes, obstacle
from benchmarks.shapes import SHAPES, random_target, shrunk
from tfjax.engine.kernel_choice import Kernels
from tfjax.kernels.routes import Route


def test_what_does_not_fit_is_told() -> None:
    assert obstacle(10, left_s=100.0, needed_s=50.0) == ""
    assert "GiB, the device has" in obstacle(1 << 50, left_s=100.0, needed_s=50.0)
    assert "expected to take 50 s and 40 s are left" in obstacle(10, left_s=40.0, needed_s=50.0)


def test_a_shape_without_time_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device_shapes, "memory_budget", lambda: 1 << 40)
    blocks = Blocks(1.0)
    measure_shapes(blocks)
    assert [(name, "s are left" in why) for name, why in blocks.left_out.items()] == [(s.name, True) for s in SHAPES]
    assert "LFM2.5-24B-A2B left out: it is expected to take" in capsys.readouterr().out


def test_draws_go_by_the_operators_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_device(*asked: Any) -> Any:
        return replace(random_target(*asked), kernels=Kernels(Route.PALLAS_GPU, "a test"))

    class Told(Exception):
        """Carries the route, so that nothing is compiled."""

    def step(module: Any, taps: Any, route: Route) -> Any:
        raise Told(route)

    monkeypatch.setattr(device_shapes, "random_target", on_device)
    monkeypatch.setattr(device_shapes, "Step", step)
    with pytest.raises(Told, match=Route.PALLAS_GPU):
        device_shapes._make(shrunk(SHAPES[0]), "auto")


@pytest.mark.slow
def test_every_number_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(device_shapes, "RUNS", 2)
    small = shrunk(SHAPES[-1])
    blocks = Blocks(1e4)
    measure_shapes(blocks, shapes=[replace(small, plain=True)])
    (row,) = blocks.found.values()
    assert row["weights"] == "random"
    assert row["assumed"] == SHAPES[-1].assumed
    assert set(row["window_ms"]) == set(ROWS)
    assert {streams: set(depths) for streams, depths in row["hold_ms"].items()} == {n: set(DEPTHS) for n in STREAMS}
    assert all(rate > 0 for rate in row["plain_tokens_per_s_by_bucket"].values())
    assert "random weights" in capsys.readouterr().out
