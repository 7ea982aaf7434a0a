"""The record of a DSpark drafter's training, with plots of its loss, acceptance and calibration."""

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
from tfjax.models.dspark_config import DSparkConfig
from tfjax.plots import line_plot
from tfjax.readable_json import readable_json
from tfjax.train.dspark_acceptance import Rounds, figures
from tfjax.train.dspark_calibration import calibration
from tfjax.train.dspark_files import MIB, to_hf
from tfjax.train.dspark_material import Material
from tfjax.train.dspark_model import parameters
from tfjax.train.dspark_settings import NAME, Settings
from tfjax.train.dspark_step import TrainState
from tfjax.train.record import PACKAGES, RECORD, final_figures, thinned
from tfjax.train.small_loop import Curve, Outcome, Pace

LOSS, ACCEPTANCE, CALIBRATION = "loss.svg", "acceptance.svg", "calibration.svg"


@dataclass(frozen=True, slots=True)
class Run:
    """A run that ended.

    Attributes:
        words: the command line after the command.
        rounds: by name of the replies they were measured on.
        config: the drafter's, with the temperatures of its confidences.
        written: bytes of model.safetensors and config.json.
        wall_s: of this call alone, reading and compiling included.
    """

    settings: Settings
    words: Sequence[str]
    pace: Pace
    outcome: Outcome[TrainState]
    rounds: Mapping[str, Rounds]
    config: DSparkConfig
    written: int
    wall_s: float


def write_record(directory: Path, run: Run, material: Material) -> None:
    """Write training.json and the plots."""
    write_atomically(directory / RECORD, (readable_json(record(run, material)) + "\n").encode())
    for name, plot in plots(run).items():
        write_atomically(directory / name, plot.encode())


def record(run: Run, material: Material) -> dict[str, Any]:
    """What training.json says."""
    outcome, pace = run.outcome, run.pace
    device = jax.devices()[0]
    rows, length = material.rows.token.shape
    return {
        "command": f"{NAME} {shlex.join(run.words)}",
        "settings": run.settings.identity(),
        "started_from": None if material.start is None else material.start.as_json(),
        "data": {**material.counts, "rows": rows, "row_tokens": length},
        "drafter": {
            **to_hf(run.config, material.target),
            "parameters": parameters(run.config),
            "sharpened": run.settings.sharpen,
            "bytes": run.written,
        },
        "steps": {"taken": outcome.step, "planned": pace.steps, "resumed_from": outcome.resumed_from},
        "final": final_figures(outcome.curve),
        "acceptance": {name: figures(rounds) for name, rounds in run.rounds.items()},
        "calibration": {
            name: {
                "as trained": calibration(rounds, (1.0,) * run.config.block),
                "with temperatures": calibration(rounds, run.config.confidence_temperatures),
            }
            for name, rounds in run.rounds.items()
        },
        "wall_s": round(run.wall_s, 1),
        "device": {"platform": device.platform, "kind": device.device_kind},
        "versions": {
            "tfjax": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        "loss_curve": thinned(outcome.curve),
    }


def plots(run: Run) -> dict[str, str]:
    """File name -> SVG; acceptance and calibration only where something was measured."""
    curve = run.outcome.curve
    names = ("loss", "cross", "distance", "divergence", "coupling", "confidence")
    losses = {name: _points(curve, name) for name in names if name == "loss" or getattr(run.settings, name)}
    found = {LOSS: line_plot(losses, title="Training of the DSpark drafter", x="steps", y="loss and its parts")}
    chances = {
        f"{name} ({summed['tokens_per_round']:.2f} tokens a round)": list(enumerate(summed["chance"], start=1))
        for name, summed in ((name, figures(rounds)) for name, rounds in run.rounds.items())
    }
    if not chances:
        return found
    found[ACCEPTANCE] = line_plot(
        chances, title="Drafts that land, those before them having landed", x="draft of the block", y="share"
    )
    believed: dict[str, list[tuple[float, float]]] = {"right": [(0.0, 0.0), (1.0, 1.0)]}
    for name, rounds in run.rounds.items():
        points = calibration(rounds, run.config.confidence_temperatures)["curve"]
        believed[name] = [(mean, share) for mean, share, _ in points]
    found[CALIBRATION] = line_plot(
        believed, title="Confidence and what landed", x="mean confidence", y="share that landed"
    )
    return found


def summary(run: Run) -> str:
    """What came of a run, in words."""
    outcome, pace = run.outcome, run.pace
    lines = [f"{run.settings.output}: {run.written / MIB:.2f} MiB after {outcome.step} of {pace.steps} steps"]
    for name, rounds in run.rounds.items():
        found = figures(rounds)
        lines.append(f"{name}: drafts by depth {found['chance']}, {found['tokens_per_round']} tokens a round")
    if outcome.step < pace.steps:
        lines.append("stopped at its limit; the same command goes on from here")
    return "\n".join(lines)


def _points(curve: Curve, name: str) -> list[tuple[float, float]]:
    return [(point["step"], point[name]) for point in curve]
