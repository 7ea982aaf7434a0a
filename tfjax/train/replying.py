"""`tfjax train replies` put together: the model as it is served, the prompts, and the directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tfjax.checkpoints import open_checkpoint
from tfjax.checkpoints.resolve import resolve_model
from tfjax.engine.buckets import Plan
from tfjax.engine.engine import Engine, Served
from tfjax.engine.load import compile_buckets, fit_memory, model_id
from tfjax.engine.step import Bucket, Step
from tfjax.engine.table import vocabulary_hash
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import load_model
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.settings import Settings
from tfjax.terminal import CommandError
from tfjax.text.loading import load_tokenizer
from tfjax.train.harvest import harvest
from tfjax.train.held_out import digests_of, load_held_out, read_problems
from tfjax.train.prompts import VERSION, ProblemPrompts, Prompts
from tfjax.train.replies import Limits, PromptEncoder, PromptSource, Writer
from tfjax.train.shards import OtherRecipe, Recipe, open_directory

CONTEXT = 1024
MOST_NEW = 448
LEAST_ROWS = 8


def write_replies(
    directory: Path,
    *,
    tokens: int,
    seed: int,
    model: str | None,
    dtype: str,
    parallel: int,
    humaneval: Path | None,
    progress: Callable[[str, float], None],
) -> int:
    """Write replies until there are `tokens` of them. Returns how many reply tokens there are.

    Raises:
        CommandError: the directory holds replies of another recipe, or a file is not what it should be.
    """
    progress("finding the model", 0.0)
    path = resolve_model(model, offline=False, progress=progress)
    checkpoint = open_checkpoint(path)
    tokenizer = load_tokenizer(checkpoint)
    if tokenizer.chat_template is None:
        raise CommandError(f"{path.name} has no chat template; replies to chats need one")
    progress("reading sources for prompts", 0.0)
    source, corpus, versions = _prompts(seed, humaneval)
    recipe = Recipe(
        model=model_id(path),
        vocabulary=vocabulary_hash(tokenizer),
        dtype=dtype,
        prompts=f"HumanEval {VERSION}" if humaneval else f"Python sources {VERSION}",
        corpus=corpus,
        versions=versions,
        seed=seed,
        context=CONTEXT,
        most_new=MOST_NEW,
    )
    try:
        open_directory(directory, recipe)
    except OtherRecipe as error:
        raise CommandError(str(error)) from error
    loaded = load_model(checkpoint, dtype, progress)
    memory = fit_memory(loaded, asked=CONTEXT, lanes=parallel)
    backend = TargetBackend(loaded, Step(loaded.module), wide_plan(parallel), memory)
    compile_buckets(backend, progress)
    settings = Settings(
        lanes=parallel,
        context=memory.context,
        pages=memory.pages,
        page_rows=PAGE_ROWS,
        vocab_size=backend.vocab,
        batch_streams=parallel,
        batch_rows=parallel,
        draft_tokens=0,
    )
    engine = Engine(backend, settings, Served(model_id(path), tokenizer, tokenizer.eos_ids))
    try:
        encoder = PromptEncoder(source, tokenizer, CONTEXT - MOST_NEW)
        return Writer(engine, encoder, directory, Limits(tokens, MOST_NEW, parallel), progress).run()
    finally:
        engine.close()


def wide_plan(parallel: int) -> Plan:
    """One verify bucket with a row for each reply; its low tiles do no work for rows that a window of one lacks.

    Nothing is drafted here, so nothing needs rows that are equal over shapes.
    """
    rows = max(LEAST_ROWS, parallel)
    return Plan(
        "one row a reply", (Bucket(rows, rows, 1),), (Bucket(128, LEAST_ROWS, 128), Bucket(512, LEAST_ROWS, 128))
    )


def _prompts(seed: int, humaneval: Path | None) -> tuple[PromptSource, str, dict[str, str]]:
    """The prompts, the hash of what they are made of, and its versions."""
    if humaneval is None:
        corpus = harvest(load_held_out())
        return Prompts(corpus, seed), corpus.sha256, corpus.versions
    try:
        problems = read_problems(humaneval)
    except ValueError as error:
        raise CommandError(str(error)) from error
    held_out = digests_of(problems)
    return ProblemPrompts(problems, seed), str(len(held_out.names)), {}
