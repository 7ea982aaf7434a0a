from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.drafters.pair import LANES, another, drafting, loaded
from tfjax.engine.compiles import compiles
from tfjax.engine.drafters import hold_times
from tfjax.engine.drafters.hold_times import doubling, time_holds
from tfjax.engine.drafters.small_model import SmallModel
from tfjax.engine.rows_buffer import RowsBuffer
from tfjax.engine.timing import RUNS


def test_doubling() -> None:
    assert [doubling(most) for most in (1, 2, 3, 4, 6, 8)] == [
        [1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 6], [1, 2, 4, 8],
    ]  # fmt: skip


class Recording:
    """Counts the holds of a drafter's step by streams and depth, without doing them."""

    def __init__(self, drafter: SmallModel, monkeypatch: pytest.MonkeyPatch):
        self.calls: list[tuple[int, int]] = []
        self.drafter = drafter
        monkeypatch.setattr(drafter.step, "hold", self.hold)

    def hold(self, bucket: Any, state: Any, token: Any, matrix: Any, depths: Any, page_table: Any) -> Any:
        buffer = RowsBuffer(bucket.rows)
        buffer.matrix[:] = matrix
        assert (buffer["temperature"] > 0).sum() == (depths > 0).sum(), "sampled draws cost more"
        self.calls.append((int((depths > 0).sum()), int(depths.max())))
        return np.zeros(1), state


def test_every_point_is_measured_once_and_kept(
    perfect: SmallModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recording = Recording(another(perfect, drafting(loaded())), monkeypatch)
    points = {(streams, depth) for streams in (1, 2, LANES) for depth in (1, 2, 4, 8)}
    grid, is_new = time_holds(recording.drafter, tmp_path, ["device"])
    assert is_new
    assert {(streams, depth) for streams, row in grid.items() for depth in row} == points == set(recording.calls)
    assert all(recording.calls.count(point) >= RUNS + 1 for point in points)
    recording.calls.clear()
    assert time_holds(recording.drafter, tmp_path, ["device"]) == (grid, False)
    assert not recording.calls
    time_holds(recording.drafter, tmp_path, ["another device"])
    assert recording.calls


def test_times_go_to_their_points(perfect: SmallModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SmallModel, "hold_once", lambda drafter, streams, depth: None)
    rows = iter([{1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, {1: 3.0, 2: 4.0, 4: 6.0, 8: 9.0}, {1: 5.0, 2: 6.0, 4: 7.0, 8: 11.0}])
    expected = dict(zip((1, 2, LANES), list(rows), strict=True))
    rows = iter(expected.values())
    monkeypatch.setattr(hold_times, "measure", lambda depths, run: next(rows))
    assert time_holds(perfect, tmp_path, [])[0] == expected


def test_a_depth_slower_than_as_many_first_drafts_is_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_times, "measure", lambda depths, run: {1: 2.0, 2: 4.3, 4: 9.0, 8: 40.0})
    again: list[int] = []

    def fastest(run: Any, depth: int) -> float:
        again.append(depth)
        return {4: 7.0, 8: 17.0}[depth]

    monkeypatch.setattr(hold_times, "fastest_ms", fastest)
    row = hold_times._measure_depths([1, 2, 4, 8], lambda depth: None)
    assert row == {1: 2.0, 2: 4.3, 4: 7.0, 8: 17.0}
    assert again == [4, 8]


def test_measuring_really_drafts(perfect: SmallModel, tmp_path: Path) -> None:
    drafter = another(perfect, drafting(loaded()))
    before = compiles()
    grid, _ = time_holds(drafter, tmp_path, [])
    assert compiles() == before
    assert all(ms > 0 for row in grid.values() for ms in row.values())
    assert grid[1][8] > grid[1][1]
