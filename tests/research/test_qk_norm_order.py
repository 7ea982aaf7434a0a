"""The order experiment on a tiny target: every drafter is trained in its order and measured in both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from research import qk_norm_order
from tests.train import dspark_run

FLAGS = [word for word in dspark_run.FLAGS if word] + ["--steps", "4"]


@pytest.mark.slow
def test_the_whole_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = dspark_run.base(tmp_path)
    places = ["--model", str(base / "target"), "--replies", str(base / "replies")]
    words = [str(base / "out"), *places, *FLAGS, "--seeds", "1", "--norm-rates", "1", "40"]
    assert qk_norm_order.main(words) == 0
    rows = json.loads((base / "out" / "qk_norm_order.json").read_text())
    assert [(row["order"], row["norm_rate"]) for row in rows] == [
        (order, rate) for rate in (1.0, 40.0) for order in ("before_rope", "after_rope")
    ]
    for row in rows:
        assert set(row["kept"]) == {"before_rope", "after_rope"}
        assert set(row["kept"]["before_rope"]) == {"held-out replies, greedy", "held-out replies, sampled"}
        assert len(row["layers"]) == 1
    # What a rate of their own does to the norms.
    assert rows[2]["difference"] > 5 * rows[0]["difference"] > 0
    assert rows[0]["steps"] == rows[3]["steps"] == 4
    assert "<circle" in (base / "out" / "qk_norm_order.svg").read_text()
    assert capsys.readouterr().out.count("| after_rope | 1 |") == 2


def row(order: str, own: float, other: float) -> dict[str, Any]:
    swapped = {"before_rope": "after_rope", "after_rope": "before_rope"}[order]
    return {"order": order, "kept": {order: {"x": [own, 0.1]}, swapped: {"x": [other, 0.1]}}}


def test_what_the_other_order_loses() -> None:
    assert qk_norm_order.lost(row("after_rope", 2.0, 1.5), "x") == 0.25
    assert qk_norm_order.lost(row("before_rope", 1.0, 1.1), "x") == pytest.approx(-0.1)
    assert qk_norm_order.lost(row("before_rope", 0.0, 0.0), "x") == 0
