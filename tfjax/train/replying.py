"""`tfjax train replies` put together: the model as it is served, the prompts, and the directory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfjax.checkpoints import open_checkpoint
from tfjax.checkpoints.resolve import resolve_model
from tfjax.engine.buckets import Plan
from tfjax.engine.engine import Engine, Served
from tfjax.engine.fitting import fit_memory
from tfjax.engine.load import compile_buckets, model_id
from tfjax.engine.step import Bucket, Step
from tfjax.engine.table import vocabulary_hash
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel, Progress, load_model
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.settings import Settings
from tfjax.terminal import CommandError
from tfjax.text.loading import load_tokenizer
from tfjax.train.harvest import harvest
from tfjax.train.held_out import held_out_modules, load_held_out, read_problems
from tfjax.train.prompts import VERSION, ProblemPrompts, Prompts
from tfjax.train.replies import Limits, PromptEncoder, PromptSource, Writer
from tfjax.train.shards import HUMAN_EVAL, Recipe, open_directory

LEAST_ROWS = 8


@dataclass(frozen=True, slots=True)
class ReplySettings:
    """What `tfjax train replies` is told.

    Attributes:
        tokens: reply tokens wanted in all.
        context: most tokens of prompt and reply together.
        max_tokens: most tokens of a reply; prompts have the rest of the context.
        parallel: replies under way at once.
        save_every_s: seconds between two shards.
        humaneval: problems to answer in place of prompts to learn from.
    """

    output: Path
    tokens: int
    seed: int
    model: str | None
    dtype: str
    context: int
    max_tokens: int
    parallel: int
    save_every_s: float
    humaneval: Path | None


def write_replies(settings: ReplySettings, progress: Callable[[str, float], None]) -> int:
    """Write replies until there are as many tokens as wanted. Returns how many reply tokens there are.

    Raises:
        UnusableReplies: the directory holds replies of another recipe, or a damaged file.
        CommandError: the model cannot chat, or the problems cannot be read.
    """
    progress("finding the model", 0.0)
    path = resolve_model(settings.model, offline=False, progress=progress)
    checkpoint = open_checkpoint(path)
    tokenizer = load_tokenizer(checkpoint)
    if tokenizer.chat_template is None:
        raise CommandError(f"{path.name} has no chat template; replies to chats need one")
    progress("reading sources for prompts", 0.0)
    prompts = _prompts(settings, path)
    recipe = Recipe(
        model=model_id(path),
        vocabulary=vocabulary_hash(tokenizer),
        dtype=settings.dtype,
        prompts=prompts.name,
        corpus=prompts.sha256,
        versions=prompts.versions,
        seed=settings.seed,
        context=settings.context,
        most_new=settings.max_tokens,
    )
    open_directory(settings.output, recipe)
    # Its plan has row counts that nothing proves on device kernels.
    loaded = load_model(checkpoint, settings.dtype, progress, settings.context, kernels="reference")
    engine = _engine(loaded, Served(model_id(path), tokenizer, tokenizer.eos_ids), settings, progress)
    try:
        encoder = PromptEncoder(prompts.source, tokenizer, settings.context - settings.max_tokens)
        limits = Limits(settings.tokens, settings.max_tokens, settings.parallel, settings.save_every_s)
        return Writer(engine, encoder, settings.output, limits, progress).run()
    finally:
        engine.close()


def _engine(loaded: LoadedModel, served: Served, settings: ReplySettings, progress: Progress) -> Engine:
    memory = fit_memory(loaded, asked=settings.context, lanes=settings.parallel)
    backend = TargetBackend(loaded, Step(loaded.module), wide_plan(settings.parallel), memory)
    compile_buckets(backend, progress)
    loop = Settings(
        lanes=settings.parallel,
        context=memory.context,
        pages=memory.pages,
        page_rows=PAGE_ROWS,
        vocab_size=backend.vocab,
        batch_streams=settings.parallel,
        batch_rows=settings.parallel,
        draft_tokens=0,
    )
    return Engine(backend, loop, served)


def wide_plan(parallel: int) -> Plan:
    """One verify bucket with a row for each reply; its low tiles do no work for rows that a window of one lacks.

    Nothing is drafted here, so nothing needs rows that are equal over shapes.
    """
    rows = max(LEAST_ROWS, parallel)
    return Plan(
        "one row a reply", (Bucket(rows, rows, 1),), (Bucket(128, LEAST_ROWS, 128), Bucket(512, LEAST_ROWS, 128))
    )


@dataclass(frozen=True, slots=True)
class _Material:
    """Prompts and what they are made of."""

    name: str
    source: PromptSource
    sha256: str
    versions: dict[str, str]


def _prompts(settings: ReplySettings, model: Path) -> _Material:
    if settings.humaneval is None:
        skips = held_out_modules(model)
        corpus = harvest(load_held_out(), skips=skips)
        name = f"Python sources {VERSION}" if skips is None else f"learned Python sources {VERSION}"
        return _Material(name, Prompts(corpus, settings.seed), corpus.sha256, corpus.versions)
    try:
        problems = read_problems(settings.humaneval)
    except ValueError as error:
        raise CommandError(str(error)) from error
    sha256 = hashlib.sha256("\0".join(problem.prompt for problem in problems).encode()).hexdigest()
    return _Material(f"{HUMAN_EVAL} {VERSION}", ProblemPrompts(problems, settings.seed), sha256, {})
