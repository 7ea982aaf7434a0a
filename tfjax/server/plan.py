"""A request that has been read and checked, ready for the engine."""

from __future__ import annotations

from dataclasses import dataclass

from tfjax.engine.api import Generation


@dataclass(frozen=True, slots=True)
class Plan:
    """What one HTTP request asks the engine for.

    Attributes:
        generations: one a choice, in the order of the choices' indices.
        prompt_tokens: over the request's prompts, each counted once whatever `n` is.
        wants_logprobs: whether choices carry logprobs.
        ignored: names of unknown fields.
    """

    id: str
    model: str
    created: int
    generations: tuple[Generation, ...]
    prompt_tokens: int
    stream: bool
    include_usage: bool
    wants_logprobs: bool
    ignored: tuple[str, ...] = ()
