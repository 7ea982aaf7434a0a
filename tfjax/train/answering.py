"""`tfjax train answers`: a Llama answers prompts made from this machine's Python, thousands side by side."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tfjax.checkpoints import open_checkpoint
from tfjax.checkpoints.resolve import resolve_model
from tfjax.engine.load import model_id
from tfjax.engine.table import vocabulary_hash
from tfjax.models.llama import LlamaConfig
from tfjax.models.registry import family_for
from tfjax.terminal import CommandError
from tfjax.text.loading import load_tokenizer
from tfjax.train.answer_pools import Pool, Request, ready_pools
from tfjax.train.dense_target import read_target
from tfjax.train.harvest import harvest
from tfjax.train.held_out import load_held_out
from tfjax.train.prompts import VERSION, Prompts
from tfjax.train.read_ahead import read_ahead
from tfjax.train.replies import PromptEncoder, Rate
from tfjax.train.shards import Recipe, WrittenReply, open_directory, write_shard, written

log = logging.getLogger(__name__)

SHARD_REPLIES = 4096
READ_AHEAD = 1 << 14
AGAIN_TEMPERATURES = (0.7, 1.0)


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """What `tfjax train answers` is told.

    Attributes:
        tokens: reply tokens wanted in all.
        context: most tokens of prompt and reply together.
        max_tokens: most tokens of a reply; prompts have the rest of the context.
        draws: replies to each prompt.
        parallel: replies under way at once.
        limit_s: seconds after which no further prompt is begun.
    """

    output: Path
    model: str | None
    tokens: int
    seed: int
    context: int
    max_tokens: int
    draws: int
    parallel: int
    limit_s: float | None


def write_answers(
    settings: AnswerSettings, progress: Callable[[str, float], None], clock: Callable[[], float] = time.monotonic
) -> int:
    """Write replies until there are as many tokens as wanted. Returns how many there are.

    Raises:
        UnusableReplies: the directory holds replies of another recipe, or a damaged file.
        CommandError: a model that cannot chat, or is no Llama.
    """
    due_s = None if settings.limit_s is None else clock() + settings.limit_s
    progress("finding the model", 0.0)
    path = resolve_model(settings.model, offline=False, progress=progress)
    checkpoint = open_checkpoint(path)
    tokenizer = load_tokenizer(checkpoint)
    if tokenizer.chat_template is None:
        raise CommandError(f"{path.name} has no chat template; replies to chats need one")
    if not isinstance(family_for(checkpoint.architecture).config_from_hf(checkpoint.config), LlamaConfig):
        raise CommandError(
            f"{checkpoint.architecture} is no Llama; `tfjax train replies` has other models answer prompts"
        )
    with ThreadPoolExecutor(1) as threads:
        progress("reading sources for prompts and compiling", 0.0)
        reading = threads.submit(lambda: harvest(load_held_out()))
        pools = ready_pools(read_target(checkpoint), settings, tokenizer.eos_ids)
        corpus = reading.result()
    recipe = Recipe(
        model=model_id(path),
        vocabulary=vocabulary_hash(tokenizer),
        dtype="bfloat16",
        prompts=f"Python sources {VERSION}",
        corpus=corpus.sha256,
        versions=corpus.versions,
        seed=settings.seed,
        context=settings.context,
        most_new=settings.max_tokens,
        sampling=f"dense, {settings.draws} to a prompt",
    )
    open_directory(settings.output, recipe)
    done, total = written(settings.output)
    encoder = PromptEncoder(Prompts(corpus, settings.seed), tokenizer, settings.context - settings.max_tokens)
    writer = Writer(settings.output, tokenizer.vocab_size, total, clock)
    with read_ahead(requests(encoder, settings.draws, done), READ_AHEAD) as asked:
        return _answer(pools, asked, writer, settings.tokens, lambda: due_s is not None and clock() > due_s, progress)


def requests(encoder: PromptEncoder, draws: int, done: set[int]) -> Iterator[Request]:
    """Prompts to answer, each as often as asked: first as it says, then at temperatures and with seeds of their own.

    A reply's number is the prompt's times `draws`, plus the draw; what is in `done` is left out.
    """
    for number in itertools.count():
        if done.issuperset(range(number * draws, (number + 1) * draws)):
            continue
        if (encoded := encoder.encode(number)) is None:
            log.warning("prompt %d is too long in every attempt and is left out", number)
            continue
        prompt, tokens = encoded
        for draw in range(draws):
            chance = random.Random(f"{prompt.seed}/{draw}")  # noqa: S311  (no secret)
            temperature = round(chance.uniform(*AGAIN_TEMPERATURES), 2) if draw else prompt.temperature
            index = number * draws + draw
            if index not in done:
                yield Request(index, prompt.kind, temperature, chance.getrandbits(32), tokens)


class Writer:
    """Gathers replies into shards and counts their tokens."""

    def __init__(self, directory: Path, vocab: int, total: int, clock: Callable[[], float]) -> None:
        self.total = total
        self._directory = directory
        self._vocab = vocab
        self._replies: list[WrittenReply] = []
        self._rate = Rate(clock)

    def add(self, replies: list[WrittenReply]) -> None:
        self._replies += replies
        new = sum(len(reply.reply) for reply in replies)
        self.total += new
        self._rate.tokens += new
        if len(self._replies) >= SHARD_REPLIES:
            self.write()

    def write(self) -> None:
        if self._replies:
            path = write_shard(self._directory, self._replies, self._vocab)
            self._replies = []
            log.info("%s: %d reply tokens, %.0f a second", path.name, self.total, self._rate.per_s)


def _answer(
    pools: list[Pool],
    asked: Iterator[Request],
    writer: Writer,
    wanted: int,
    is_late: Callable[[], bool],
    progress: Callable[[str, float], None],
) -> int:
    """Keep the pools busy. At the end all that was begun is finished, so that no long reply is left out for its length.

    What is finished is written also when this is interrupted.
    """
    try:
        while True:
            open_tokens = sum(pool.open_tokens for pool in pools)
            if ending := is_late() or writer.total + open_tokens >= wanted:
                for pool in pools:
                    pool.waiting.clear()
            else:
                _hand_out(pools, asked)
            busy = [pool for pool in pools if pool.is_due(ending)]
            if ending and not busy:
                return writer.total
            for pool in busy:
                pool.launch()
            for pool in busy:
                writer.add(pool.collect())
            progress("writing answers", min(1.0, writer.total / wanted))
    finally:
        writer.write()


def _hand_out(pools: list[Pool], asked: Iterator[Request]) -> None:
    """Give each prompt to the narrowest pool that it fits, until one pool has all it can take and as much again."""
    while any(pool.lacks for pool in pools) and not any(pool.is_crowded for pool in pools):
        request = next(asked)
        next(pool for pool in pools if len(request.prompt) <= pool.room).waiting.append(request)
