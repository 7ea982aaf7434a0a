"""Usage, timings, rates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfjax.engine.api import Finished, Stats
from tfjax.server.tally import block_of, decode_tps, timings_of, usage_of

STATS = Stats(
    prompt_tokens=10,
    completion_tokens=5,
    cached_tokens=4,
    rounds=3,
    drafted=8,
    accepted=2,
    drafted_per_position=(2, 2, 2, 2),
    accepted_per_position=(1, 1),
    drafted_rounds=2,
    min_rows=2,
    queue_ms=1.0,
    prefill_ms=20.0,
    ttft_ms=21.0,
    decode_ms=400.0,
    seed=7,
    token_sha256="ab",
    stood_aside_rounds=64,
    probes=3,
)
TWO = [Finished("stop", STATS), Finished("stop", replace(STATS, completion_tokens=3, decode_ms=100.0, prefill_ms=30.0))]


def test_usage_counts_the_prompt_once() -> None:
    usage = usage_of(10, TWO)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (10, 8, 18)
    assert usage.prompt_tokens_details.cached_tokens == 4


def test_choices_of_one_prompt_share_what_was_cached_and_other_prompts_add_to_it() -> None:
    first, second = (Finished("stop", replace(STATS, cached_tokens=cached)) for cached in (0, 8))
    assert usage_of(10, [first, second]).prompt_tokens_details.cached_tokens == 4
    assert usage_of(20, [first, second]).prompt_tokens_details.cached_tokens == 8
    assert usage_of(10, []).prompt_tokens_details.cached_tokens == 0


def test_timings_add_up_and_take_the_slowest() -> None:
    timings = timings_of(TWO)
    assert (timings.cache_n, timings.prompt_n, timings.predicted_n) == (8, 12, 8)
    assert (timings.prompt_ms, timings.predicted_ms) == (30.0, 400.0)
    assert timings.predicted_per_second == 15.0
    assert (timings.draft_n, timings.draft_n_accepted) == (16, 4)


@pytest.mark.parametrize(("tokens", "ms", "rate"), [(5, 400.0, 10.0), (1, 400.0, 0.0), (5, 0.0, 0.0), (0, 0.0, 0.0)])
def test_decode_rate_counts_the_tokens_after_the_first(tokens: int, ms: float, rate: float) -> None:
    assert decode_tps(tokens, ms) == rate


def test_the_block() -> None:
    block = block_of(STATS)
    assert (block.token_sha256, block.seed, block.rounds, block.drafted, block.accepted) == ("ab", 7, 3, 8, 2)
    assert (block.stood_aside_rounds, block.probes) == (64, 3)
    assert (block.min_rows, block.ttft_ms, block.decode_tps) == (2, 21.0, 10.0)
    assert (block.drafted_per_position, block.accepted_per_position, block.drafted_rounds) == ([2] * 4, [1, 1], 2)
