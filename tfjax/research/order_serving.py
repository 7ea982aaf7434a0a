"""Serves a target with its drafter in both orders and counts the drafts that each keeps."""

from __future__ import annotations

import dataclasses
import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfjax.config import ServeConfig
from tfjax.engine.api import Event, Finished, Generation, Sampling
from tfjax.engine.drafters.choosing import choose_drafter
from tfjax.engine.drafters.joining import add_drafter
from tfjax.engine.engine import Engine, Served
from tfjax.engine.fitting import fit_both
from tfjax.engine.load import start_backend, timing_key
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.opening import Opened, loop_settings, open_model
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel, Progress
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.proposer import Silent
from tfjax.research.order_kept import ORDERS, Kept
from tfjax.terminal import CommandError
from tfjax.text.chat_template import ChatTemplate
from tfjax.text.tokenizer import Tokenizer

FORWARD_MS, HOLD_MS = 1e6, 1e-3
"""Prices by which every draft pays: rounds all take as long, and drafts take nothing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What both orders are asked for.

    Attributes:
        prompts: texts to go on from, or to answer where the model has a chat template.
        tokens: most of a reply.
        samplings: by a name for people.
    """

    prompts: tuple[str, ...]
    tokens: int
    samplings: Mapping[str, Sampling]


type Counts = dict[str, list[Kept]]
"""For each way of sampling, what was kept in the replies to all prompts."""


def serve_both(config: ServeConfig, asked: Asked, progress: Progress) -> dict[str, Counts]:
    """What each order keeps. The target is loaded once; the drafter is loaded for one order after the other.

    Counts depend on neither time nor company, so that nothing is gained by taking turns.

    Raises:
        CommandError: a prompt that leaves no room for a reply.
        CheckpointError, ConfigError, DoesNotFit, NotExact, UnusableDrafter: with what to do about it.
    """
    opened = open_model(config, progress)
    tokenizer, model = opened.tokenizer, opened.model
    prompts = [encoded(tokenizer, prompt) for prompt in asked.prompts]
    config = dataclasses.replace(config, context=_context(prompts, asked.tokens, model.config.context))
    target: TargetBackend | None = None
    counts: dict[str, Counts] = {}
    for order in ORDERS:
        ordered = dataclasses.replace(config, drafter_qk_norm=order)
        choice = choose_drafter(ordered, model, tokenizer, progress)
        memory, choice = fit_both(ordered, model, choice)
        if target is None:
            target = _started(model, memory, choice.model.taps if choice.model else (), progress)
        backend, _ = add_drafter(ordered, target, choice, timing_key(target, opened.checkpoint), progress)
        if not isinstance(backend, Drafted):
            raise CommandError(f"the drafter does not draft here: {choice.reason}")
        counts[order] = _counted(backend, target, opened, prompts, asked, progress, order)
    return counts


def encoded(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """The prompt's tokens, as a message of a user where the model has a chat template."""
    if tokenizer.chat_template is not None:
        template = ChatTemplate(tokenizer.chat_template, tokenizer.bos_token, tokenizer.eos_token)
        text = template.render([{"role": "user", "content": text}])
    return tuple(tokenizer.encode(text))


def _context(prompts: Sequence[tuple[int, ...]], tokens: int, most: int) -> int:
    longest = max(map(len, prompts))
    if longest >= most:
        raise CommandError(f"a prompt has {longest} tokens and the model takes {most}, the reply included; shorten it")
    return min(most, max(16, longest + tokens))


def _started(model: LoadedModel, memory: MemoryPlan, taps: Sequence[int], progress: Progress) -> TargetBackend:
    target, _ = start_backend(model, memory, progress, taps)
    target.window_ms = dict.fromkeys(target.widths, FORWARD_MS)
    return target


def _counted(
    backend: Drafted,
    target: TargetBackend,
    opened: Opened,
    prompts: Sequence[tuple[int, ...]],
    asked: Asked,
    progress: Progress,
    order: str,
) -> Counts:
    """Reply to every prompt, one at a time, with all drafts that the drafter makes and no others."""
    backend.drafter.hold_ms = {1: {1: HOLD_MS, backend.drafter.depth: HOLD_MS}}
    settings = loop_settings(target, draft_tokens=backend.drafter.depth)
    served = Served(opened.path.name, opened.tokenizer, opened.tokenizer.eos_ids)
    engine = Engine(backend, settings, served, proposer=lambda _: Silent())
    counts: Counts = {name: [] for name in asked.samplings}
    try:
        for number, prompt in enumerate(prompts):
            progress(f"serving {order}", number / len(prompts))
            most = min(asked.tokens, settings.context - len(prompt))
            for name, sampling in asked.samplings.items():
                counts[name].append(_kept(engine, Generation(order, prompt, most, sampling)))
    finally:
        engine.close()
    return counts


def _kept(engine: Engine, generation: Generation) -> Kept:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine.submit(generation, events.put)
    while not isinstance(event := events.get(), Finished):
        pass
    if event.error is not None:
        raise CommandError(event.error)
    return Kept(event.stats.drafted_rounds, event.stats.accepted)
