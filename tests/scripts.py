"""Scripts: what a scripted model says after a context, and the plainest loop that follows one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tfjax.lanes.stream import Request

VOCAB = 50
EOS = 49

Script = Callable[[Sequence[int], int], int]
"""(context, prompt length) -> the next token. A pure function, so that one context always has one continuation."""


def hashed(seed: int = 0, vocab: int = VOCAB - 1) -> Script:
    """A token that depends on every token before it: any wrong row in the cache changes it."""
    return lambda context, prompt: hash((seed, *context)) % vocab


def listed(tokens: Sequence[int], seed: int = 0) -> Script:
    """The given tokens, then hashed ones. A context that left the list is hashed too, so that a wrong row shows."""
    after = hashed(seed)

    def script(context: Sequence[int], prompt: int) -> int:
        done = len(context) - prompt
        on_list = done < len(tokens) and tuple(context[prompt:]) == tuple(tokens[:done])
        return tokens[done] if on_list else after(context, prompt)

    return script


def looping(period: int, seed: int = 0, slip: int = 0) -> Script:
    """Repeats the tokens `period` back; every `slip`-th place (where given) is hashed instead."""
    fresh = hashed(seed)

    def script(context: Sequence[int], prompt: int) -> int:
        if len(context) < period or (slip and hash((seed, *context[-8:])) % slip == 0):
            return fresh(context, prompt)
        return context[-period]

    return script


def teasing(length: int, seed: int = 0) -> Script:
    """Repeats a phrase of this length, each time followed by one hashed token: what followed it before is no guide."""
    fresh = hashed(seed)

    def script(context: Sequence[int], prompt: int) -> int:
        place = (len(context) - prompt) % (length + 1)
        return place if place < length else fresh(context, prompt)

    return script


def penalised(script: Script, limit: int = 2, min_tokens: int = 0) -> Script:
    """A target with history: a token drawn `limit` times moves on to the next id; EOS is banned before `min_tokens`."""

    def next_token(context: Sequence[int], prompt: int) -> int:
        seen = Counter(context[prompt:])
        token = script(context, prompt)
        while seen[token] >= limit or (token == EOS and len(context) - prompt < min_tokens):
            token = (token + 1) % VOCAB
            if seen.total() >= limit * (VOCAB - 1):
                break
        return token

    return next_token


def serial(request: Request, context_limit: int = 1 << 30) -> tuple[list[int], str, list[Any]]:
    """Tokens, finish reason and logprobs of a request by the plainest loop there is. The oracle of all lane tests."""
    context = list(request.prompt)
    tokens: list[int] = []
    while True:
        token = request.sampling(context, len(request.prompt))
        tokens.append(token)
        context.append(token)
        reason = None
        if token in request.stop_ids or (request.check is not None and request.check(token)):
            reason = "stop"
        elif len(tokens) == request.max_new or len(context) == context_limit:
            reason = "length"
        if reason:
            return (
                tokens,
                reason,
                [logprob_of(context[:end]) for end in range(len(request.prompt) + 1, len(context) + 1)],
            )


def logprob_of(context: Sequence[int]) -> tuple[int, int]:
    """What the scripted backend reports for the last token: it depends on all that the row saw."""
    return context[-1], hash(tuple(context))
