"""Second turns on the real weights: the tokens of a cold start, and much sooner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from statistics import median

import pytest

from benchmarks.real_model import Opened
from benchmarks.suite import LICENSE
from tests.engine.scripted_engine import Receiver
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.engine import Engine, Served

pytestmark = [pytest.mark.weights, pytest.mark.timeout(600)]

KINDS = {
    "greedy": Sampling(temperature=0.0, logprobs=3),
    "sampled": Sampling(temperature=0.8, top_p=0.9, seed=5, logprobs=3),
    "penalised": Sampling(temperature=0.0, repetition_penalty=1.2, frequency_penalty=0.3, logprobs=3),
}
SPEEDUP = 5


class Conversation:
    """Requests to an engine that keeps prompts; each `cold` one has a salt of its own."""

    def __init__(self, opened: Opened) -> None:
        settings = replace(opened.settings, prompt_pages=opened.settings.pages)
        self.engine = Engine(opened.backend, settings, Served("model", opened.tokenizer, ()))
        self.text = opened.tokenizer.encode(LICENSE.read_text(encoding="utf-8"))
        self._salts = count()

    def reply(self, tokens: tuple[int, ...], sampling: Sampling, *, new: int, cold: bool = False) -> Receiver:
        receiver = Receiver()
        salt = f"cold {next(self._salts)}" if cold else ""
        self.engine.submit(Generation("x", tokens, new, sampling, ignore_eos=True, cache_salt=salt), receiver)
        assert receiver.ended.wait(120)
        assert receiver.wait().error is None
        return receiver


@pytest.fixture
def conversation(opened: Opened) -> Iterator[Conversation]:
    made = Conversation(opened)
    yield made
    made.engine.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [105, 106, 170])
def test_a_second_turn_has_the_tokens_of_a_cold_start(conversation: Conversation, kind: str, size: int) -> None:
    sampling = KINDS[kind]
    first = conversation.reply(tuple(conversation.text[:size]), sampling, new=24)
    second = (*conversation.text[:size], *first.tokens, *conversation.text[size : size + 9])
    warm, cold = (conversation.reply(second, sampling, new=24, cold=cold) for cold in (False, True))
    assert cold.wait().stats.cached_tokens == 0
    assert warm.wait().stats.cached_tokens == (size + 23) // 64 * 64
    assert warm.wait().stats.token_sha256 == cold.wait().stats.token_sha256
    assert [event.logprobs for event in warm.events if event.logprobs]
    assert entries(warm) == entries(cold)


def entries(receiver: Receiver) -> list[object]:
    return [entry for event in receiver.events for entry in event.logprobs or ()]


@pytest.mark.alone
def test_a_second_turn_of_1500_tokens_starts_five_times_sooner(conversation: Conversation) -> None:
    """A first turn of 1,420 tokens, its reply of 40, and a question of 40."""
    warm_ms, cold_ms = [], []
    for start in (0, 7, 13):
        text = conversation.text[start:]
        first = conversation.reply(tuple(text[:1420]), KINDS["greedy"], new=40)
        second = (*text[:1420], *first.tokens, *text[1420:1460])
        warm, cold = (conversation.reply(second, KINDS["greedy"], new=8, cold=cold).wait() for cold in (False, True))
        assert (warm.stats.cached_tokens, cold.stats.cached_tokens) == (1408, 0)
        assert warm.stats.token_sha256 == cold.stats.token_sha256
        warm_ms.append(warm.stats.ttft_ms)
        cold_ms.append(cold.stats.ttft_ms)
    print(f"first token of 1,500: cold {median(cold_ms):.0f} ms, second turn {median(warm_ms):.0f} ms")
    assert median(cold_ms) > SPEEDUP * median(warm_ms)
