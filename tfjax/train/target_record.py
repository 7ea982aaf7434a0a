"""The record of a target's training: all that is needed to repeat it, and what came of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjax.checkpoints.cache import write_atomically
from tfjax.plots import line_plot
from tfjax.readable_json import readable_json
from tfjax.train.record import PLOT, RECORD, environment, final_figures, thinned
from tfjax.train.small_loop import Outcome, Pace
from tfjax.train.target_config import BITS, TargetConfig
from tfjax.train.target_settings import NAME, Settings
from tfjax.train.target_step import TrainState

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """A run that ended.

    Attributes:
        words: the command line after the command.
        corpus: what the text was made from.
        held_out: loss and agreement on all text that was not learned.
        trained_s: of this call's steps alone; with --steps it holds the compilation.
        wall_s: of this call alone, reading and compiling included.
    """

    settings: Settings
    words: Sequence[str]
    config: TargetConfig
    corpus: Mapping[str, Any]
    pace: Pace
    outcome: Outcome[TrainState]
    held_out: Mapping[str, Any]
    weights_bytes: int
    trained_s: float
    wall_s: float

    @property
    def tokens_per_s(self) -> float:
        """Learned tokens a second in this call."""
        steps = self.outcome.step - self.outcome.resumed_from
        return steps * self.settings.batch * self.settings.length / self.trained_s


def write_record(directory: Path, run: Run) -> None:
    """Write training.json and loss.svg."""
    write_atomically(directory / RECORD, (readable_json(record(run)) + "\n").encode())
    names = {"loss": "learned text", "held_out": "held-out text"}
    series = {shown: [(point["step"], point[name]) for point in run.outcome.curve] for name, shown in names.items()}
    plot = line_plot(series, title="Training of the target", x="steps", y="nats a token")
    write_atomically(directory / PLOT, plot.encode())


def record(run: Run) -> dict[str, Any]:
    """What training.json says."""
    outcome, config = run.outcome, run.config
    return {
        "command": f"{NAME} {shlex.join(run.words)}",
        "settings": run.settings.identity(),
        "corpus": dict(run.corpus),
        "model": {
            **config.to_hf(),
            "parameters": config.parameters,
            "weights_bytes": run.weights_bytes,
            "mlx_mib": {name: round(size / MIB, 2) for name, size in sizes(config).items()},
        },
        "steps": {"taken": outcome.step, "planned": run.pace.steps, "resumed_from": outcome.resumed_from},
        "final": final_figures(outcome.curve),
        "held_out": dict(run.held_out),
        "tokens_per_s": round(run.tokens_per_s),
        "wall_s": round(run.wall_s, 1),
        **environment(),
        "loss_curve": thinned(outcome.curve),
    }


def sizes(config: TargetConfig) -> dict[str, int]:
    """Bytes in MLX's affine form by precision."""
    found = {f"{bits} bits": config.stored_bytes(bits) for bits in BITS}
    return found | {"8 bits, experts 4": config.stored_bytes(8, 4)}


def summary(run: Run) -> str:
    """What came of it, for people."""
    outcome, held_out = run.outcome, run.held_out
    stored = ", ".join(f"{size / MIB:.2f} MiB at {name}" for name, size in sizes(run.config).items())
    taken = f"{outcome.step} of {run.pace.steps} steps, {run.tokens_per_s:.0f} tokens a second"
    lines = [
        f"{run.settings.output}: {run.config.parameters / 1e6:.2f} million parameters ({stored}) after {taken}",
        f"held-out text: {held_out['loss']} nats a token, {held_out['agreement']:.1%} of the tokens the likeliest",
    ]
    if outcome.step < run.pace.steps:
        lines.append("stopped at its limit; the same command goes on from here")
    return "\n".join(lines)
