"""What the server asks of the engine, and what it is told back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply's tokens are drawn.

    The draw at absolute position p is the argmax of (filtered logit / temperature + Gumbel noise keyed by seed, p and
    token id), so one seed always gives one reply. Order: logit bias, penalties, temperature, top-k, top-p, min-p.

    Attributes:
        temperature: 0 draws the largest logit (lower id on ties).
        top_k: 0 is off.
        top_p: 1.0 is off.
        min_p: 0.0 is off.
        seed: unsigned 64-bit.
        presence_penalty, frequency_penalty: over generated tokens.
        repetition_penalty: 1.0 is off; over prompt and generated tokens.
        logit_bias: (token id, added logit) pairs.
        min_tokens: stop tokens are banned until this many tokens are generated.
        logprobs: None for none, else the number of alternatives (0..20).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """One reply to be generated (a request with n > 1 is n of these).

    Attributes:
        id: shown in logs.
        prompt: token ids, at least one.
        max_tokens: most tokens to generate; at least 1, and prompt + max_tokens fits the context.
        stop: strings that end the reply; they and what follows are not shown.
        stop_token_ids: tokens that end the reply besides the model's EOS.
        ignore_eos: go on past the model's EOS.
        draft: False gives the serial reference: no drafts, same tokens.
        cache_salt: prompts reuse what was computed for others of the same salt only.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    draft: bool = True
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Raw log probabilities at one emitted token: its own, and the most likely alternatives, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens that one round emitted, and the text that became certain with them (maybe empty).

    `text_ends[i]` is the number of characters of this reply's text that were certain after `tokens[i]`.
    """

    tokens: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...] | None = None
    text_ends: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and times of one reply.

    Drafted: rows verified as drafts. Accepted: drafts emitted to the user. Cached: prompt tokens that were not computed
    again. Stood aside: rounds that went without the small model because its drafts did not pay; probes: times that it
    was tried again meanwhile.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    rounds: int
    drafted: int
    accepted: int
    drafted_per_position: tuple[int, ...]
    accepted_per_position: tuple[int, ...]
    drafted_rounds: int
    min_rows: int
    queue_ms: float
    prefill_ms: float
    ttft_ms: float
    decode_ms: float
    seed: int
    token_sha256: str
    stood_aside_rounds: int = 0
    probes: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The reply is over. `reason` is stop, length, cancelled or error; `error` says what went wrong."""

    reason: str
    stats: Stats
    error: str | None = None


Event = Tokens | Finished
Sink = Callable[[Event], None]
"""Called from the engine thread; must not block."""


class QueueFull(Exception):
    """Too many requests wait. The message names the limit and the flag."""


class EngineStopped(Exception):
    """The engine drains or has failed; no new requests."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A submitted generation.

    Attributes:
        cancel: ends it; may be called from any thread, any number of times.
        waiting: whether it still waits for a lane; from any thread.
    """

    cancel: Callable[[], None]
    waiting: Callable[[], bool]
