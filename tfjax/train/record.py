"""The record of a training run: all that is needed to repeat it, and what came of it."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from tfjax import __version__
from tfjax.checkpoints.cache import write_atomically
from tfjax.plots import line_plot
from tfjax.readable_json import readable_json
from tfjax.train.small_loop import Curve, Outcome, Pace
from tfjax.train.small_material import Material
from tfjax.train.small_settings import NAME, Settings
from tfjax.train.small_step import TrainState

RECORD, PLOT = "training.json", "loss.svg"
MOST_POINTS = 100
PACKAGES = ("jax", "jaxlib", "optax", "orbax-checkpoint", "numpy")


@dataclass(frozen=True, slots=True)
class Run:
    """A run that ended.

    Attributes:
        words: the command line after the command.
        acceptance: by name of the replies it was measured on.
        wall_s: of this call alone, reading and compiling included.
    """

    settings: Settings
    words: Sequence[str]
    pace: Pace
    outcome: Outcome[TrainState]
    acceptance: Mapping[str, Any]
    weights_bytes: int
    wall_s: float


def write_record(directory: Path, run: Run, material: Material) -> None:
    """Write training.json and loss.svg."""
    write_atomically(directory / RECORD, (readable_json(record(run, material)) + "\n").encode())
    curve = run.outcome.curve
    series = {"loss": [(point["step"], point["loss"]) for point in curve]}
    if run.settings.teacher == "online":
        series["divergence from the target"] = [(point["step"], point["divergence"]) for point in curve]
    series["cross entropy of replies"] = [(point["step"], point["cross_entropy"]) for point in curve]
    plot = line_plot(series, title="Training of the small drafter", x="steps", y="nats a token")
    write_atomically(directory / PLOT, plot.encode())


def record(run: Run, material: Material) -> dict[str, Any]:
    """What training.json says."""
    settings, outcome, pace = run.settings, run.outcome, run.pace
    rows, length = material.rows.token.shape
    return {
        "command": f"{NAME} {shlex.join(run.words)}",
        "settings": settings.identity(),
        "data": {**material.counts, "rows": rows, "row_tokens": length, "filled": _share(material)},
        "drafter": {
            **material.config.to_hf(),
            "parameters": material.config.parameters,
            "weights_bytes": run.weights_bytes,
        },
        "steps": {"taken": outcome.step, "planned": pace.steps, "resumed_from": outcome.resumed_from},
        "final": final_figures(outcome.curve),
        "acceptance": dict(run.acceptance),
        "wall_s": round(run.wall_s, 1),
        **environment(),
        "loss_curve": thinned(outcome.curve),
    }


def environment() -> dict[str, Any]:
    """Where a run took place: the device, and the versions of what has a say in its numbers."""
    device = jax.devices()[0]
    return {
        "device": {"platform": device.platform, "kind": device.device_kind},
        "versions": {
            "tfjax": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
    }


def thinned(curve: Curve, most: int = MOST_POINTS) -> Curve:
    """Every n-th point, and the last."""
    stride = -(-len(curve) // most) if curve else 1
    return [point for index, point in enumerate(curve) if (len(curve) - 1 - index) % stride == 0]


def final_figures(curve: Curve, points: int = 20) -> dict[str, float]:
    """Means over the last points."""
    tail = curve[-points:]
    return {name: round(sum(point[name] for point in tail) / len(tail), 4) for name in tail[0] if name != "step"}


def _share(material: Material) -> float:
    return round(float((material.rows.segment > 0).mean()), 4)
