"""A training run of a DSpark drafter from its settings to its files."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tfjax.checkpoints.cache import write_atomically
from tfjax.models.dspark_config import DSparkConfig
from tfjax.terminal import progress_on_stderr
from tfjax.train.dense_target import DenseTarget, read_target
from tfjax.train.dspark_acceptance import Rounds, land, walk
from tfjax.train.dspark_calibration import fit_temperatures
from tfjax.train.dspark_dense import Params
from tfjax.train.dspark_files import save, served, to_hf
from tfjax.train.dspark_loss import Models, Objective, SureOf
from tfjax.train.dspark_material import Material, gather
from tfjax.train.dspark_model import models_of, random_params, sharpened
from tfjax.train.dspark_record import Run, summary, write_record
from tfjax.train.dspark_settings import Settings
from tfjax.train.dspark_step import Given, Step, TrainState, first_state, knobs, make_step
from tfjax.train.small_checkpoints import Checkpoints
from tfjax.train.small_data import rows_of_steps
from tfjax.train.small_loop import Keeper, Outcome, Pace, train
from tfjax.train.small_material import fingerprint
from tfjax.train.small_progress import training_progress
from tfjax.train.small_settings import option

CHECKPOINTS = "checkpoints"
PLAN = "plan.json"


def run(asked: Settings, words: Sequence[str]) -> str:
    """Train, or go on training, and write the drafter and its record. Returns what came of it in words.

    Raises:
        ValueError: settings, replies and target that do not go together.
        FloatingPointError: the loss is no longer a number.
    """
    settings = asked.for_device(jax.default_backend())
    check_strides(settings)
    started_s = time.monotonic()
    with progress_on_stderr() as progress:
        material = gather(settings, progress)
        keeper = Checkpoints(settings.output / CHECKPOINTS, _identity(settings, material))
        progress("putting the target on the device", 0.0)
        target = read_target(material.checkpoint)
    models = models_of(material.config, target, material.draft_ids)
    step = make_step(material.config, target.shape, objective_of(settings), settings.anchors)
    try:
        pace = pace_of(settings, _planned(settings, material, target, models, step))
        outcome = fit(settings, material, target, models, step, pace, keeper)
    finally:
        keeper.close()
    params = sharpened(outcome.state.params, material.config, settings.sharpen)
    with progress_on_stderr() as progress:
        progress("measuring acceptance", 0.0)
        rounds = measure(params, models, material, material.config, settings)
    config = calibrated(material.config, rounds)
    hf = to_hf(config, target.shape)
    written = save(settings.output, params, config, material.draft_ids, int(settings.bits), hf)
    finished = Run(settings, words, pace, outcome, rounds, config, written, wall_s=time.monotonic() - started_s)
    write_record(settings.output, finished, material)
    return summary(finished)


def _identity(settings: Settings, material: Material) -> dict[str, Any]:
    """What a run has to have in common with the checkpoints that it goes on from."""
    start = None if material.start is None else material.start.sha256
    rows = fingerprint((*material.rows.packed, material.rows.temperature))
    return {**settings.identity(), "rows": rows, "started_from": start}


def check_strides(settings: Settings) -> None:
    """Raises ValueError where checkpoints would fall inside a dispatch."""
    if settings.save_every % settings.steps_per_call:
        raise ValueError(
            f"{option('save_every')} {settings.save_every} is no multiple of {option('steps_per_call')} "
            f"{settings.steps_per_call}, and checkpoints are written between dispatches; give one that is"
        )


def objective_of(settings: Settings) -> Objective:
    return Objective(
        cross=settings.cross,
        distance=settings.distance,
        divergence=settings.divergence,
        confidence=settings.confidence,
        decay=settings.decay,
        sure_of=SureOf(settings.confidence_target),
        coupling=settings.coupling,
        matched=settings.compare_at == "reply",
        greedy_temperature=settings.greedy_temperature,
    )


def fit(
    settings: Settings,
    material: Material,
    target: DenseTarget,
    models: Models,
    step: Step,
    pace: Pace,
    keeper: Keeper,
) -> Outcome[TrainState]:
    """Train from the last checkpoint, else from the drafter that was given, else from random parameters."""
    state = first_state(_first_params(settings, material, target))
    given = Given(models, knobs(settings.learning_rate, settings.norm_rate, pace.steps, settings.seed))
    with training_progress(pace.steps, _in_words) as report:
        return train(step, state, given, material.rows, pace, keeper, report)


def _first_params(settings: Settings, material: Material, target: DenseTarget) -> Params:
    if material.start is None:
        return random_params(material.config, target, settings.seed)
    params: Params = jax.tree.map(jnp.array, material.start.params)  # a copy, for steps take their state's memory
    return params


def measure(
    params: Any, models: Models, material: Material, config: DSparkConfig, settings: Settings
) -> dict[str, Rounds]:
    """The rounds of all replies that are measured on, by their name, with the weights that are served."""
    stored = served(params, int(settings.bits))
    found = {}
    for name, rows in material.measured.items():
        landed = land(stored, models, rows, config, material.target, batch=settings.batch)
        found[name] = walk(rows.packed, landed)
    return found


def calibrated(config: DSparkConfig, rounds: dict[str, Rounds]) -> DSparkConfig:
    """With temperatures that fit the held-out replies, else all that were measured; without any, as it is."""
    own = [found for name, found in rounds.items() if name.startswith("held-out")] or list(rounds.values())
    if not own:
        return config
    return dataclasses.replace(config, confidence_temperatures=fit_temperatures(Rounds.together(own)))


def pace_of(settings: Settings, steps: float) -> Pace:
    """Strides of at least that many steps."""
    return Pace(
        steps=math.ceil(steps / settings.steps_per_call) * settings.steps_per_call,
        steps_per_call=settings.steps_per_call,
        save_every=settings.save_every,
        batch=settings.batch,
        seed=settings.seed,
        limit_s=settings.limit_s,
    )


def steps_in(
    minutes: float, settings: Settings, material: Material, target: DenseTarget, models: Models, step: Step
) -> int:
    """Steps that take the minutes, as the second dispatch of a run that is thrown away tells."""
    state = first_state(random_params(material.config, target, settings.seed))
    given = Given(models, knobs(settings.learning_rate, settings.norm_rate, 1 << 20, settings.seed))
    data = jax.tree.map(jnp.asarray, material.rows)
    count = settings.steps_per_call
    rows = jnp.asarray(rows_of_steps(settings.seed, len(data.token), settings.batch, 0, count))
    taken_s = 0.0
    for _ in range(2):
        started_s = time.monotonic()
        state, _ = jax.block_until_ready(step(state, given, data, rows))
        taken_s = time.monotonic() - started_s
    return max(count, int(60 * minutes / taken_s) * count)


def _planned(settings: Settings, material: Material, target: DenseTarget, models: Models, step: Step) -> int:
    """Steps of this run, kept beside its checkpoints for resuming where the clock decides them."""
    if settings.minutes is None:
        return settings.steps
    path = settings.output / CHECKPOINTS / PLAN
    if path.exists():
        return int(json.loads(path.read_text(encoding="utf-8"))["steps"])
    steps = steps_in(settings.minutes, settings, material, target, models, step)
    write_atomically(path, json.dumps({"steps": steps}).encode())
    return steps


def _in_words(point: dict[str, float]) -> str:
    return f"loss {point['loss']:.3f}, first draft {point['agreement']:.3f}, kept {point['kept']:.2f}"
