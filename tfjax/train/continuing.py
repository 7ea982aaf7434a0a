"""`tfjax train continuations`: a target goes on from pieces of its corpus, thousands side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints import open_checkpoint
from tfjax.engine.load import model_id
from tfjax.engine.table import vocabulary_hash
from tfjax.terminal import CommandError
from tfjax.text.loading import load_tokenizer
from tfjax.train.corpus_tokens import CorpusTokens, read_corpus
from tfjax.train.dense_target import DenseTarget, read_target
from tfjax.train.lfm2_dense import Lfm2Shape
from tfjax.train.lfm2_sample import continue_text
from tfjax.train.shards import HELD_OUT, Recipe, WrittenReply, open_directory, write_shard, written
from tfjax.train.target_tokenizer import START

VERSION = 1
KIND = "code continuation"
TEMPERATURES = (0.0, 0.0, 0.8, 1.0)
LEAST_GIVEN = 8


@dataclass(frozen=True, slots=True)
class ContinueSettings:
    """What `tfjax train continuations` is told.

    Attributes:
        model, corpus: a target, and what it was trained on.
        held_out: go on from text that was not learned; such replies measure drafters and train none.
        tokens: reply tokens wanted in all.
        prompt_tokens: most tokens of a prompt.
        max_tokens: tokens of a row beyond those; a reply ends earlier where the text does.
        parallel: rows of a batch; each batch is a file.
        temperatures: a row takes one of them, each with the same chance.
    """

    output: Path
    model: Path
    corpus: Path
    held_out: bool
    tokens: int
    seed: int
    prompt_tokens: int
    max_tokens: int
    parallel: int
    temperatures: tuple[float, ...] = TEMPERATURES


def write_continuations(settings: ContinueSettings, progress: Callable[[str, float], None]) -> int:
    """Write replies until there are as many tokens as wanted. Returns how many there are.

    Raises:
        UnusableReplies, UnusableCorpus: a directory that is damaged or of another recipe.
        CommandError: a model that was not trained on this corpus, or is no LFM2.
    """
    checkpoint = open_checkpoint(settings.model)
    tokenizer, corpus = load_tokenizer(checkpoint), read_corpus(settings.corpus)
    if tokenizer.vocab_size != corpus.vocab:
        raise CommandError(
            f"{settings.model} has {tokenizer.vocab_size} tokens and {settings.corpus} has {corpus.vocab}; give the "
            "corpus that the model was trained on"
        )
    recipe = Recipe(
        model=model_id(settings.model),
        vocabulary=vocabulary_hash(tokenizer),
        dtype="bfloat16",
        prompts=f"{HELD_OUT if settings.held_out else 'learned'} code {VERSION}",
        corpus=str(corpus.record["sha256"]),
        versions=corpus.record["versions"],
        seed=settings.seed,
        context=settings.prompt_tokens + settings.max_tokens,
        most_new=settings.max_tokens,
        sampling=_sampling(settings.temperatures),
    )
    open_directory(settings.output, recipe)
    progress("loading the model", 0.0)
    target = read_target(checkpoint)
    if not isinstance(target.shape.config, Lfm2Shape):
        raise CommandError(
            f"{checkpoint.architecture} cannot go on from a corpus; give a model of `tfjax train target`"
        )
    done, total = written(settings.output)
    batches = (batch for batch in itertools.count() if batch * settings.parallel not in done)
    while total < settings.tokens:
        progress("writing", total / settings.tokens)
        replies = list(_batch(settings, target, corpus, tokenizer.eos_ids, next(batches)))
        write_shard(settings.output, replies, tokenizer.vocab_size)
        total += sum(len(reply.reply) for reply in replies)
    return total


def _sampling(temperatures: tuple[float, ...]) -> str:
    """As the recipe says it."""
    return "" if temperatures == TEMPERATURES else f"temperatures {' '.join(f'{value:g}' for value in temperatures)}"


def _batch(
    settings: ContinueSettings, target: DenseTarget, corpus: CorpusTokens, ends: tuple[int, ...], number: int
) -> Iterator[WrittenReply]:
    """One batch; its number and the seed decide it."""
    chance = np.random.default_rng([settings.seed, number])
    part = corpus.held_out if settings.held_out else corpus.learned
    given = prompts(part, settings.parallel, settings.prompt_tokens, chance)
    given = np.pad(given, ((0, 0), (0, settings.max_tokens)))
    length = chance.integers(min(LEAST_GIVEN, settings.prompt_tokens), settings.prompt_tokens + 1, settings.parallel)
    temperature = chance.choice(settings.temperatures, settings.parallel).astype(np.float32)
    key = jax.random.fold_in(jax.random.key(settings.seed), number)
    shape, weights = target
    assert isinstance(shape.config, Lfm2Shape)
    arguments = map(jnp.asarray, (given, length, temperature))
    found = np.asarray(continue_text(weights.body, weights.head, *arguments, key, shape.config))
    for row, (tokens, start) in enumerate(zip(found.tolist(), length.tolist(), strict=True)):
        index = number * settings.parallel + row
        reply = until_end(tokens[start : start + settings.max_tokens], ends)
        yield WrittenReply(index, KIND, round(float(temperature[row]), 4), tuple(tokens[:start]), reply)


def prompts(part: NDArray[np.uint16], count: int, length: int, chance: np.random.Generator) -> NDArray[np.int32]:
    """Pieces of text behind the start token: every other one the beginning of a document, the rest from anywhere.

    Shape: [count, length].
    """
    if len(part) < length:
        raise CommandError(f"the corpus has {len(part)} tokens of this kind; lower --prompt-tokens {length}")
    begins = np.flatnonzero(part == START)
    begins = begins[begins <= len(part) - length]
    anywhere = chance.integers(0, len(part) - length + 1, count)
    start = np.where(np.arange(count) % 2 == 0, chance.choice(begins, count), anywhere) if len(begins) else anywhere
    found = part[start[:, None] + np.arange(length)].astype(np.int32)
    found[:, 0] = START
    return found


def until_end(reply: list[int], ends: tuple[int, ...]) -> tuple[int, ...]:
    """A reply up to its first end token, that one included."""
    first = next((place for place, token in enumerate(reply) if token in ends), len(reply) - 1)
    return tuple(reply[: first + 1])
