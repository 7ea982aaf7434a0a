"""The record: curves are thinned with their last point kept, and final figures are means over the last points."""

from __future__ import annotations

import itertools

from tfjax.train.record import final_figures, thinned


def curve(points: int) -> list[dict[str, float]]:
    return [{"step": float(i + 1), "loss": float(i)} for i in range(points)]


def test_a_short_curve_is_kept_whole() -> None:
    assert thinned(curve(100)) == curve(100)
    assert thinned([]) == []


def test_a_long_curve_is_thinned_evenly_and_keeps_its_end() -> None:
    steps = [point["step"] for point in thinned(curve(1001), most=200)]
    assert len(steps) <= 200
    assert steps[-1] == 1001
    assert {b - a for a, b in itertools.pairwise(steps)} == {6}


def test_final_figures_are_means_over_the_last_points() -> None:
    assert final_figures(curve(100), points=20) == {"loss": 89.5}
    assert final_figures(curve(3), points=20) == {"loss": 1.0}
