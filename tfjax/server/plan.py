"""A request that has been read and checked, ready for the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

    def of_key(self, label: str) -> Plan:
        """The same for one API key: computed prompts are shared with requests of that key and salt alone."""
        salted = (replace(one, cache_salt=f"{label}\n{one.cache_salt}") for one in self.generations)
        return replace(self, generations=tuple(salted))
