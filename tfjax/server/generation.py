"""From a request's fields to what the engine is asked for."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tfjax.engine.api import Generation, Sampling
from tfjax.server.errors import ApiError, bad_request
from tfjax.server.port import EnginePort
from tfjax.server.schemas import (
    MAX_SEED,
    CountOrZero,
    MinP,
    RepetitionPenalty,
    SamplingFields,
    Temperature,
    TopP,
)

log = logging.getLogger("tfjax.server")

# A fresh seed fits a JavaScript number, so that every client can send it back as it read it.
FRESH_SEED_BITS = 53
MAX_GENERATIONS = 64
MIN_LENGTH = 64 * 1024
LENGTH_PER_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Defaults:
    """Sampling where a request is silent: the model's own generation_config, else OpenAI's 1.0 and no filter."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


_KINDS: Mapping[str, Any] = {
    "temperature": Temperature,
    "top_k": CountOrZero,
    "top_p": TopP,
    "min_p": MinP,
    "repetition_penalty": RepetitionPenalty,
}


def defaults_from(generation_config: Mapping[str, object]) -> Defaults:
    """The model's defaults; a value out of bounds is left out, with a warning."""
    found: dict[str, Any] = {}
    for name, kind in _KINDS.items():
        value = generation_config.get(name)
        if value is None:
            continue
        try:
            found[name] = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            log.warning("generation_config: %s is left out: %s", name, error)
    return Defaults(**found)


def sampling_of(request: SamplingFields, engine: EnginePort, defaults: Defaults, logprobs: int | None) -> Sampling:
    """The request's sampling, with a fresh seed where it names none."""
    return Sampling(
        temperature=_given(request.temperature, defaults.temperature),
        top_k=_given(request.top_k, defaults.top_k),
        top_p=_given(request.top_p, defaults.top_p),
        min_p=_given(request.min_p, defaults.min_p),
        seed=secrets.randbits(FRESH_SEED_BITS) if request.seed is None else request.seed,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=_given(request.repetition_penalty, defaults.repetition_penalty),
        logit_bias=_bias(request.logit_bias or {}, engine.tokenizer.vocab_size),
        min_tokens=request.min_tokens or 0,
        logprobs=logprobs,
    )


def generations_of(
    id: str,
    prompts: list[list[int]],
    request: SamplingFields,
    engine: EnginePort,
    sampling: Sampling,
    *,
    max_tokens: int | None,
    max_tokens_field: str = "max_tokens",
    prompt_field: str,
) -> tuple[Generation, ...]:
    """One generation a choice: `n` for each prompt, with seeds that count up.

    Raises:
        ApiError: 400 where a prompt and its reply do not fit the context, or fields contradict each other.
    """
    n = request.n or 1
    count = n * len(prompts)
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    stop_tokens = tuple(request.stop_token_ids or ())
    for token in stop_tokens:
        check_token(token, engine.tokenizer.vocab_size, "stop_token_ids")
    made: list[Generation] = []
    for prompt in prompts:
        room = room_for(len(prompt), max_tokens, engine.context, prompt_field)
        if sampling.min_tokens > room:
            raise bad_request(
                f"min_tokens is {sampling.min_tokens}, but {max_tokens_field} allows {room}; lower it.", "min_tokens"
            )
        for choice in range(n):
            made.append(
                Generation(
                    id=f"{id}-{len(made)}" if count > 1 else id,
                    prompt=tuple(prompt),
                    max_tokens=room,
                    sampling=_seeded(sampling, choice),
                    stop=stop,
                    stop_token_ids=stop_tokens,
                    ignore_eos=bool(request.ignore_eos),
                    draft=request.draft is not False,
                    cache_salt=request.cache_salt or "",
                )
            )
    return tuple(made)


def check_choices(prompts: int, n: int) -> None:
    """Refuses too many choices, before the work of reading their prompts."""
    if prompts * n > MAX_GENERATIONS:
        raise bad_request(
            f"{prompts} prompts with n={n} are {prompts * n} choices; one request may ask for {MAX_GENERATIONS}. "
            "Split the list over several requests.",
            "prompt",
        )


def room_for(prompt_tokens: int, max_tokens: int | None, context: int, field: str) -> int:
    """How many tokens to generate: what was asked for, or what fits.

    Raises:
        ApiError: 400 context_length_exceeded, worded as OpenAI's so that agents compact.
    """
    room = context - prompt_tokens
    if room < 1:
        raise _too_long(
            f"This server's maximum context length is {context} tokens. However, your {field} resulted in "
            f"{prompt_tokens} tokens, which leaves no room for a reply. Please reduce the length of the {field}.",
            field,
        )
    if max_tokens is None:
        return room
    if max_tokens > room:
        raise _too_long(
            f"This server's maximum context length is {context} tokens. However, you requested "
            f"{prompt_tokens + max_tokens} tokens ({prompt_tokens} in the {field}, {max_tokens} in the completion). "
            f"Please reduce the length of the {field} or completion.",
            field,
        )
    return max_tokens


def check_text_size(text_bytes: int, context: int, longest_token_bytes: int, field: str) -> None:
    """Refuses a text that cannot fit however it is split, before the work of splitting it."""
    at_least = -(-text_bytes // longest_token_bytes)
    if at_least > context:
        raise _too_long(
            f"This server's maximum context length is {context} tokens. However, your {field} resulted in at least "
            f"{at_least} tokens. Please reduce the length of the {field}.",
            field,
        )


def check_length(length: int, context: int, field: str, unit: str = "characters") -> None:
    """Refuses what is far longer than the context. The work on it would hold up the running replies."""
    most = max(MIN_LENGTH, LENGTH_PER_TOKEN * context)
    if length > most:
        raise bad_request(
            f"The field '{field}' has {length} {unit}; one request may have {most}. Split it over several requests.",
            field,
            "too_long",
        )


def check_token(token: int, vocab_size: int, field: str) -> None:
    if token >= vocab_size:
        raise bad_request(f"The field '{field}' holds token {token}; the vocabulary ends at {vocab_size - 1}.", field)


def _too_long(message: str, field: str) -> ApiError:
    return bad_request(message, field, "context_length_exceeded")


def _bias(given: Mapping[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    bias: dict[int, float] = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise bad_request(f"The field 'logit_bias' has the key '{key[:32]}', which is no token id.", "logit_bias")
        check_token(int(key), vocab_size, "logit_bias")
        if int(key) in bias:
            raise bad_request(f"The field 'logit_bias' names token {int(key)} twice.", "logit_bias")
        bias[int(key)] = value
    return tuple(sorted(bias.items()))


def _seeded(sampling: Sampling, choice: int) -> Sampling:
    """Stays within what a request may ask for, so that each choice can be asked for again."""
    if choice == 0:
        return sampling
    return replace(sampling, seed=(sampling.seed + choice) % (MAX_SEED + 1))


def _given[V](value: V | None, default: V) -> V:
    return default if value is None else value
