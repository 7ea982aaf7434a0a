"""A training run from its settings to its files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax

from tfjax.terminal import progress_on_stderr
from tfjax.train.record import Run, write_record
from tfjax.train.small_acceptance import measure
from tfjax.train.small_checkpoints import Checkpoints
from tfjax.train.small_loop import Outcome, Pace, train
from tfjax.train.small_material import Material, fingerprint, gather
from tfjax.train.small_model import frozen_parts, random_params, save
from tfjax.train.small_progress import training_progress
from tfjax.train.small_settings import Settings, option
from tfjax.train.small_step import Models, Objective, Schedule, TrainState, make_step
from tfjax.train.small_target import read_teacher, shape_of

CHECKPOINTS = "checkpoints"


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
        identity = {**settings.identity(), "rows": fingerprint(material.rows)}
        keeper = Checkpoints(settings.output / CHECKPOINTS, identity)
        progress("putting the target on the device", 0.0)
        models = _models(settings, material)
    pace = pace_of(settings, material)
    try:
        outcome = _fit(settings, material, models, pace, keeper)
    finally:
        keeper.close()
    weights_bytes = save(settings.output, outcome.state.params, material.config, material.draft_ids)
    acceptance = _acceptance(settings, material, models, outcome)
    finished = Run(settings, words, pace, outcome, acceptance, weights_bytes, wall_s=time.monotonic() - started_s)
    write_record(settings.output, finished, material)
    return _summary(finished)


def check_strides(settings: Settings) -> None:
    """Raises ValueError where checkpoints would fall inside a dispatch."""
    if settings.save_every % settings.steps_per_call:
        raise ValueError(
            f"{option('save_every')} {settings.save_every} is no multiple of {option('steps_per_call')} "
            f"{settings.steps_per_call}, and checkpoints are written between dispatches; give one that is"
        )


def pace_of(settings: Settings, material: Material) -> Pace:
    return Pace(
        steps=material.steps(settings),
        steps_per_call=settings.steps_per_call,
        save_every=settings.save_every,
        batch=settings.batch,
        seed=settings.seed,
        limit_s=settings.limit_s,
    )


def _models(settings: Settings, material: Material) -> Models:
    config = material.config
    frozen = frozen_parts(material.embedding, material.draft_ids, projected_head=config.projected_head)
    online = settings.teacher == "online"
    teacher = read_teacher(material.checkpoint, material.target, material.draft_ids) if online else None
    return Models(frozen, teacher)


def _fit(
    settings: Settings, material: Material, models: Models, pace: Pace, keeper: Checkpoints
) -> Outcome[TrainState]:
    schedule = Schedule(settings.learning_rate, pace.steps, settings.weight_decay)
    objective = Objective(settings.teacher_weight, settings.prompt_weight)
    step = make_step(material.config, shape_of(material.target), objective, schedule)
    params = random_params(material.config, material.embedding, settings.seed)
    state = TrainState(params, schedule.optimizer().init(params))
    with training_progress(pace.steps) as report:
        return train(step, state, models, material.rows, pace, keeper, report)


def _acceptance(settings: Settings, material: Material, models: Models, outcome: Outcome[TrainState]) -> dict[str, Any]:
    """By name of the replies, of the greedy ones among them; of all where none is greedy."""
    found = {}
    for name, documents in material.measured.items():
        greedy = [document for document in documents if document.greedy]
        found[name if greedy else f"{name} (sampled)"] = measure(
            outcome.state.params,
            models.frozen,
            greedy or documents,
            material.config,
            length=settings.length,
            batch=settings.batch,
        )
    return found


def _summary(finished: Run) -> str:
    outcome, pace, output = finished.outcome, finished.pace, finished.settings.output
    lines = [f"{output}: {finished.weights_bytes / (1 << 20):.2f} MiB after {outcome.step} of {pace.steps} steps"]
    for name, figures in finished.acceptance.items():
        lines.append(f"{name}: drafts by depth {figures['chance']}, {figures['tokens_per_round']} tokens a round")
    if outcome.step < pace.steps:
        lines.append("stopped at its limit; the same command goes on from here")
    return "\n".join(lines)
