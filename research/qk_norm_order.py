"""Does it matter whether queries and keys are normed before or after RoPE, and when can one tell?

Trains DSpark drafters of one target in both orders from several seeds, with the same data and steps, plainly and with
a higher learning rate on the norms' weights, which lets the two weights of a rotated pair drift apart. Each drafter is
then measured in both orders on held-out replies, greedy and drawn, and the drafts that the other order loses are set
against `tfjax.research.norm_pairs`' difference of its weights.

Run it from the repository's root; further flags are those of `tfjax train dspark`:

    python -m research.qk_norm_order OUT --model TARGET --replies DIR --held-out DIR --minutes 0.5 --norm-rates 1 30

It writes OUT/qk_norm_order.json and OUT/qk_norm_order.svg.

Result on one H200, for the code model that comes with tfjax, 1,600 steps a drafter (docs/research/qk-norm-order.md;
data and full command in benchmarks/results/h200/qk-norm-order.json): trained before RoPE and served after it, a drafter
loses 0.2 to 1.9 % of its drafts at a difference of 0.09, and 11.7 to 14.3 % at 0.48 and 0.49. Trained after RoPE and
served before it, it loses none that can be told, even at 0.32 and 0.39. In their own order both keep equally many. So a
difference is necessary for the order to show, and not sufficient.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.plots import line_plot
from tfjax.research.norm_pairs import layer_differences, total_difference
from tfjax.terminal import progress_on_stderr
from tfjax.train.dense_target import DenseTarget, read_target
from tfjax.train.dspark_acceptance import Rounds
from tfjax.train.dspark_material import Material, gather
from tfjax.train.dspark_model import models_of, published
from tfjax.train.dspark_run import fit, measure, objective_of, pace_of, steps_in
from tfjax.train.dspark_settings import Settings, parser, read_settings
from tfjax.train.dspark_step import make_step

ORDERS = (QKNorm.BEFORE_ROPE, QKNorm.AFTER_ROPE)
RESULT = "qk_norm_order"


@dataclass(frozen=True, slots=True)
class Case:
    """One drafter to train."""

    order: QKNorm
    seed: int
    norm_rate: float


class Forgetful:
    """Keeps no checkpoints: a run takes less than a minute."""

    def restore(self, like: Any) -> None:
        """Nothing is kept."""

    def save(self, step: int, state: Any, curve: Any) -> None:
        """Nothing is kept."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the experiment and prints its table."""
    own = argparse.ArgumentParser(prog="python -m research.qk_norm_order", description="See the file's head.")
    own.add_argument("output", type=Path)
    own.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    own.add_argument("--norm-rates", type=float, nargs="+", default=[1.0, 30.0])
    mine, flags = own.parse_known_args(argv)
    from tfjax.runtime import prepare_runtime

    if "jax" not in sys.modules:
        prepare_runtime()
    settings = read_settings(parser().parse([str(mine.output), *flags]))
    cases = [Case(order, seed, rate) for rate in mine.norm_rates for seed in mine.seeds for order in ORDERS]
    rows = []
    for row in experiment(settings, cases):
        rows.append(row)
        print(json.dumps(row), flush=True)
        write(mine.output, rows)
    print(table(rows))
    return 0


def experiment(asked: Settings, cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """What each drafter reaches in both orders."""
    import jax

    settings = asked.for_device(jax.default_backend())
    with progress_on_stderr() as progress:
        material = gather(settings, progress)
        target = read_target(material.checkpoint)
    steps = settings.steps
    if settings.minutes is not None:
        models = models_of(material.config, target, material.draft_ids)
        step = make_step(material.config, target.shape, objective_of(settings), settings.anchors)
        steps = steps_in(settings.minutes, settings, material, target, models, step)
    for case in cases:
        yield _one(case, settings, material, target, steps)


def _one(case: Case, asked: Settings, material: Material, target: DenseTarget, steps: int) -> dict[str, Any]:
    """Train a drafter and measure it in both orders."""
    started_s = time.monotonic()
    settings = dataclasses.replace(asked, seed=case.seed, norm_rate=case.norm_rate)
    config = dataclasses.replace(material.config, qk_norm=case.order)
    material = dataclasses.replace(material, config=config)
    models = models_of(config, target, material.draft_ids)
    step = make_step(config, target.shape, objective_of(settings), settings.anchors)
    outcome = fit(settings, material, target, models, step, pace_of(settings, steps), Forgetful())
    params = outcome.state.params
    differences = layer_differences(dict(published(params)), interleaved=config.interleaved)
    served = {
        order.value: _kept(measure(params, models, material, dataclasses.replace(config, qk_norm=order), settings))
        for order in ORDERS
    }
    return {
        "order": case.order.value,
        "seed": case.seed,
        "norm_rate": case.norm_rate,
        "interleaved": config.interleaved,
        "steps": outcome.step,
        "loss": outcome.curve[-1]["loss"],
        "difference": round(total_difference(differences), 5),
        "layers": [dataclasses.asdict(layer) for layer in differences],
        "kept": served,
        "wall_s": round(time.monotonic() - started_s, 1),
    }


def _kept(rounds: dict[str, Rounds]) -> dict[str, Any]:
    """Drafts kept in a round, by name of the replies, with the standard error of the mean."""
    return {
        name: [
            round(float(found.drafts.mean()), 4),
            round(float(found.drafts.std() / np.sqrt(max(1, len(found.drafts)))), 4),
        ]
        for name, found in rounds.items()
    }


def lost(row: dict[str, Any], name: str) -> float:
    """Share of the drafts kept in a round that the other order loses."""
    other = next(order.value for order in ORDERS if order.value != row["order"])
    own = row["kept"][row["order"]][name][0]
    return 1 - row["kept"][other][name][0] / own if own else 0.0


def write(directory: Path, rows: list[dict[str, Any]]) -> None:
    """The rows so far, and their plot."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{RESULT}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (directory / f"{RESULT}.svg").write_text(plot(rows), encoding="utf-8")


def plot(rows: list[dict[str, Any]]) -> str:
    """Drafts lost by serving in the other order against the difference of the weights."""
    names = list(rows[0]["kept"][rows[0]["order"]])
    series = {
        f"{name}, trained {order.value}": [
            (row["difference"], lost(row, name)) for row in rows if row["order"] == order.value
        ]
        for name in names
        for order in ORDERS
    }
    return line_plot(
        {name: points for name, points in series.items() if points},
        title="Drafts lost by serving QK-norm and RoPE in the other order",
        x="difference of the norms' weights within rotated pairs",
        y="share of kept drafts lost",
        dots=True,
    )


def table(rows: list[dict[str, Any]]) -> str:
    """One line a drafter, in Markdown."""
    names = list(rows[0]["kept"][rows[0]["order"]])
    heads = ["trained", "seed", "norm rate", "difference"]
    heads += [f"{name}: {order.value}" for name in names for order in ORDERS]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        cells = [row["order"], row["seed"], f"{row['norm_rate']:g}", f"{row['difference']:.3f}"]
        cells += ["{:.3f} ± {:.3f}".format(*row["kept"][order.value][name]) for name in names for order in ORDERS]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
