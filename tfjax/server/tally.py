"""Usage, timings and the tfjax block, from the engine's counts."""

from __future__ import annotations

from collections.abc import Sequence

from tfjax.engine.api import Finished, Stats
from tfjax.server.replies import CompletionDetails, PromptDetails, TfjaxBlock, Timings, Usage


def usage_of(prompt_tokens: int, finished: Sequence[Finished]) -> Usage:
    """Counts of a request; its prompt counts once however many choices were made from it, with what each had cached."""
    completion = sum(event.stats.completion_tokens for event in finished)
    prompts = sum(event.stats.prompt_tokens for event in finished)
    cached = sum(event.stats.cached_tokens for event in finished) * prompt_tokens // max(1, prompts)
    return Usage(prompt_tokens, completion, prompt_tokens + completion, PromptDetails(cached), CompletionDetails())


def decode_tps(tokens: int, decode_ms: float) -> float:
    """Tokens a second after the first one; 0 where there is no second."""
    return round((tokens - 1) / decode_ms * 1000, 3) if tokens > 1 and decode_ms > 0 else 0.0


def timings_of(finished: Sequence[Finished]) -> Timings:
    """Counts add up over choices; times are those of the slowest."""
    stats = [event.stats for event in finished]
    predicted = sum(s.completion_tokens for s in stats)
    predicted_ms = max(s.decode_ms for s in stats)
    return Timings(
        cache_n=sum(s.cached_tokens for s in stats),
        prompt_n=sum(s.prompt_tokens - s.cached_tokens for s in stats),
        prompt_ms=round(max(s.prefill_ms for s in stats), 3),
        predicted_n=predicted,
        predicted_ms=round(predicted_ms, 3),
        predicted_per_second=decode_tps(predicted - len(stats) + 1, predicted_ms),
        draft_n=sum(s.drafted for s in stats),
        draft_n_accepted=sum(s.accepted for s in stats),
    )


def block_of(stats: Stats) -> TfjaxBlock:
    return TfjaxBlock(
        token_sha256=stats.token_sha256,
        seed=stats.seed,
        rounds=stats.rounds,
        drafted=stats.drafted,
        accepted=stats.accepted,
        drafted_per_position=list(stats.drafted_per_position),
        accepted_per_position=list(stats.accepted_per_position),
        drafted_rounds=stats.drafted_rounds,
        min_rows=stats.min_rows,
        stood_aside_rounds=stats.stood_aside_rounds,
        probes=stats.probes,
        ttft_ms=round(stats.ttft_ms, 3),
        decode_tps=decode_tps(stats.completion_tokens, stats.decode_ms),
    )
