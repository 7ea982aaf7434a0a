"""A training run of a small target from its settings to its files."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.terminal import progress_on_stderr
from tfjax.train.corpus_tokens import CorpusTokens, UnusableCorpus, open_corpus
from tfjax.train.small_checkpoints import Checkpoints
from tfjax.train.small_data import rows_of_steps
from tfjax.train.small_loop import Outcome, Pace, train
from tfjax.train.small_progress import training_progress
from tfjax.train.target_config import TargetConfig
from tfjax.train.target_held_out import measure
from tfjax.train.target_model import save
from tfjax.train.target_pace import Timing, pace_of, timed
from tfjax.train.target_record import Run, summary, write_record
from tfjax.train.target_settings import Settings
from tfjax.train.target_step import Learning, Plan, Step, Stream, TrainState, make_step

CHECKPOINTS, PLAN = "checkpoints", "plan.json"


def run(asked: Settings, words: Sequence[str]) -> str:
    """Train, or go on training, and write the model and its record. Returns what came of it in words.

    Raises:
        ValueError: settings and corpus that do not go together.
        FloatingPointError: the loss is no longer a number.
    """
    settings = asked.for_device(jax.default_backend())
    started_s = time.monotonic()
    with progress_on_stderr() as progress:
        corpus = open_corpus(settings.corpus, settings.vocab, settings.also, progress)
        if settings.prepare_only:
            return f"{settings.corpus}: {len(corpus.learned)} tokens to learn, {len(corpus.held_out)} held out"
        config = config_of(settings, corpus)
        identity = {**settings.identity(), "tokens": hashlib.sha256(corpus.learned.tobytes()).hexdigest()[:16]}
        keeper = Checkpoints(settings.output / CHECKPOINTS, identity)
    learning = Learning(settings.learning_rate, settings.weight_decay, settings.seed)
    held_out = pieces(corpus.held_out, settings.length + 1, "held out")
    data = Stream(jnp.asarray(pieces(corpus.learned, settings.length, "learned", least=2)))
    step = make_step(config.shape, learning)
    try:
        pace = pace_of(
            settings,
            settings.output / CHECKPOINTS / PLAN,
            lambda: _time(step, config, learning, data, settings, held_out),
        )
        began_s = time.monotonic()
        outcome = _fit(step, config, learning, data, pace, keeper, held_out)
        trained_s = time.monotonic() - began_s
    finally:
        keeper.close()
    weights_bytes = save(settings.output, outcome.state.params, outcome.state.biases, config)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(settings.corpus / name, settings.output / name)
    figures = measure(outcome.state, held_out, config.shape, settings.batch)
    finished = Run(
        settings=settings,
        words=words,
        config=config,
        corpus=corpus.record,
        pace=pace,
        outcome=outcome,
        held_out=figures,
        weights_bytes=weights_bytes,
        trained_s=trained_s,
        wall_s=time.monotonic() - started_s,
    )
    write_record(settings.output, finished)
    return summary(finished)


def config_of(settings: Settings, corpus: CorpusTokens) -> TargetConfig:
    """The model's shapes: as asked, with the vocabulary that the text gave."""
    return TargetConfig(
        vocab=corpus.vocab,
        hidden=settings.hidden,
        inner=settings.inner,
        expert_inner=settings.expert_inner,
        layers=settings.layers,
        attention=settings.attention,
        dense_layers=settings.dense_layers,
        heads=settings.heads,
        kv_heads=settings.kv_heads,
        experts=settings.experts,
        picked=settings.picked,
        taps=settings.taps,
        context=settings.context,
        rope_theta=settings.rope_theta,
    )


def pieces(token: NDArray[np.uint16], length: int, name: str, least: int = 1) -> NDArray[np.uint16]:
    """The tokens cut into rows; what is left at the end is not used. Shape: [rows, length].

    Raises:
        UnusableCorpus: too few tokens.
    """
    rows = len(token) // length
    if rows < least:
        raise UnusableCorpus(
            f"the corpus has {len(token)} {name} tokens, too few for {least} x {length}; lower --length, or add "
            "packages with --also"
        )
    return token[: rows * length].reshape(rows, length)


def _plan(pace_steps: int, held_out: NDArray[np.uint16], batch: int) -> Plan:
    return Plan(jnp.asarray(pace_steps, jnp.int32), jnp.asarray(held_out[:batch]))


def _time(
    step: Step,
    config: TargetConfig,
    learning: Learning,
    data: Stream,
    settings: Settings,
    held_out: NDArray[np.uint16],
) -> Timing:
    """Time the step on a state that is thrown away."""
    state = learning.first_state(config)
    plan = _plan(1 << 20, held_out, settings.batch)
    rows = jnp.asarray(rows_of_steps(settings.seed, len(data.token), settings.batch, 0, settings.steps_per_call))

    def call() -> None:
        nonlocal state
        state, metrics = step(state, plan, data, rows)
        jax.block_until_ready(metrics)

    return timed(call, settings.steps_per_call)


def _fit(
    step: Step,
    config: TargetConfig,
    learning: Learning,
    data: Stream,
    pace: Pace,
    keeper: Checkpoints,
    held_out: NDArray[np.uint16],
) -> Outcome[TrainState]:
    plan = _plan(pace.steps, held_out, pace.batch)
    with training_progress(pace.steps, in_words) as report:
        return train(step, learning.first_state(config), plan, data, pace, keeper, report)


def in_words(point: dict[str, float]) -> str:
    """The figures to watch."""
    return f"loss {point['loss']:.3f}, held out {point['held_out']:.3f}, busiest expert {point['imbalance']:.2f}"
