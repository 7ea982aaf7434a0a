"""The served model as requests see it: its names, defaults and limits."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from tfjax.engine.api import Generation
from tfjax.server.errors import ApiError, bad_request
from tfjax.server.generation import Defaults, defaults_from
from tfjax.server.plan import Plan
from tfjax.server.port import EnginePort, TokenizerPort
from tfjax.server.schemas import SamplingFields
from tfjax.server.spelling import Speller
from tfjax.server.templates import Templates


@dataclass(frozen=True, slots=True)
class Model:
    """An engine, with what is derived from it once.

    Attributes:
        names: the first one is what replies carry.
        longest_token_bytes: no token is longer, so a text has at least its bytes divided by this in tokens.
        templates: None when the model has no chat template.
    """

    engine: EnginePort
    names: tuple[str, ...]
    defaults: Defaults
    speller: Speller
    longest_token_bytes: int
    templates: Templates | None

    def checked_name(self, name: str | None) -> str:
        """The name that replies carry.

        Raises:
            ApiError: 404 when `name` is another model.
        """
        if name is not None and name not in self.names:
            served = ", ".join(f"'{known}'" for known in self.names)
            raise ApiError(
                404,
                f"The model '{name[:128]}' does not exist here. This server serves {served}; see /v1/models.",
                param="model",
                code="model_not_found",
            )
        return self.names[0]


def model_of(engine: EnginePort, aliases: Iterable[str]) -> Model:
    tokenizer = engine.tokenizer
    return Model(
        engine=engine,
        names=tuple(dict.fromkeys((*aliases, engine.model_id))),
        defaults=defaults_from(engine.generation_config),
        speller=Speller(tokenizer),
        longest_token_bytes=longest_token_bytes(tokenizer),
        templates=Templates.of(tokenizer),
    )


def longest_token_bytes(tokenizer: TokenizerPort) -> int:
    """At least 64, for special tokens are written by name."""
    return max(64, *(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size)))


def check_stream_options(request: SamplingFields) -> None:
    if request.stream_options is not None and not request.stream:
        raise bad_request("'stream_options' needs 'stream': true; leave it out.", "stream_options")


def new_plan(
    id: str,
    name: str,
    request: SamplingFields,
    generations: tuple[Generation, ...],
    prompt_tokens: int,
    wants_logprobs: bool,
    ignored: list[str],
) -> Plan:
    options = request.stream_options
    return Plan(
        id=id,
        model=name,
        created=int(time.time()),
        generations=generations,
        prompt_tokens=prompt_tokens,
        stream=bool(request.stream),
        include_usage=bool(options and options.include_usage),
        wants_logprobs=wants_logprobs,
        ignored=tuple(ignored),
    )
