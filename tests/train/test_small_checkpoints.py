"""Checkpoints: what is read is what was written, only two are kept, and another run's are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.train.small_checkpoints import SETTINGS, Checkpoints, OtherRun
from tfjax.train.small_step import Schedule, TrainState


def state(seed: int) -> TrainState:
    params: dict[str, Any] = {"layers": {"q": jax.random.normal(jax.random.key(seed), (2, 3))}, "norm": jnp.ones(3)}
    return TrainState(params, Schedule(0.1, 10, 0.1).optimizer().init(params))


def test_state_and_curve_come_back_bit_for_bit(tmp_path: Path) -> None:
    curve = [{"step": 2.0, "loss": 0.5}]
    keeper = Checkpoints(tmp_path, {"seed": 1})
    keeper.save(2, state(7), curve)
    keeper.close()
    found = Checkpoints(tmp_path, {"seed": 1}).restore(state(0))
    assert found is not None
    step, restored, points = found
    assert (step, points) == (2, curve)
    assert jax.tree.structure(restored) == jax.tree.structure(state(7))
    for left, right in zip(jax.tree.leaves(restored), jax.tree.leaves(state(7)), strict=True):
        assert left.dtype == right.dtype
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


def test_nothing_kept_is_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "new", {}).restore(state(0)) is None


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    keeper = Checkpoints(tmp_path, {})
    for step in (2, 4, 6):
        keeper.save(step, state(step), [])
    keeper.save(6, state(0), [])
    keeper.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["4", "6"]
    found = Checkpoints(tmp_path, {}).restore(state(0))
    assert found is not None
    assert (found[1].params["layers"]["q"] == state(6).params["layers"]["q"]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": 2, "layers": 2}, "a run with seed 1, and this one has 2"),
        ({"seed": 1, "layers": 3}, "a run with layers 2, and this one has 3"),
        ({"seed": 1}, "a run with layers 2, and this one has None"),
        ({"seed": 1, "layers": 2, "head": "own"}, "a run with head None, and this one has 'own'"),
    ],
)
def test_another_runs_directory_is_refused_by_the_first_difference(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    Checkpoints(tmp_path, {"seed": 1, "layers": 2}).close()
    with pytest.raises(OtherRun, match=rf"{message}; repeat its flags .* another --output"):
        Checkpoints(tmp_path, settings)


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_damaged_settings_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / SETTINGS).write_text(content)
    with pytest.raises(OtherRun, match=r"settings\.json is damaged; remove"):
        Checkpoints(tmp_path, {})
