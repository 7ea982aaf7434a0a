"""Replies of the tiny_llama_* checkpoints by the engine's own step and lane loop, in float32.

Token ids are kept, no logits: the last bits of a logit differ between processors, the largest of 64 random ones does
not. The models are those of make_tiny_llama.py.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.stubs import Recorder
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.api import Sampling
from tfjax.engine.buckets import Plan
from tfjax.engine.load import compile_buckets
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.step import Bucket, Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import load_model
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.loop import Lanes
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request

HERE = Path(__file__).parent
VARIANTS = ("tied", "untied", "head_dim", "biases", "llama3_rope")
LANES, CONTEXT, VOCAB, TOKENS = 8, 128, 64, 48
MEMORY = MemoryPlan(CONTEXT, False, LANES, LANES * CONTEXT // PAGE_ROWS, cache_bytes=0, weight_bytes=0, budget_bytes=0)
BUCKETS = (Bucket(16, 16, 8),)
SETTINGS = Settings(
    lanes=LANES, context=CONTEXT, pages=MEMORY.pages, page_rows=PAGE_ROWS, vocab_size=VOCAB, draft_tokens=7,
    first_width=7,
)  # fmt: skip

PROMPTS: dict[str, Sequence[int]] = {
    "short": (1, 5, 9),
    "repeating": (7, 8, 9, 10, 11, 12) * 4,
    "long": tuple((5 * place * place + 3) % VOCAB for place in range(60)),
}
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "seeded": Sampling(temperature=1.0, seed=20_261_129),
    "filtered": Sampling(temperature=0.7, top_k=12, top_p=0.9, min_p=0.02, seed=2**63 + 5),
    "penalised": Sampling(temperature=0.8, seed=3, repetition_penalty=1.2, frequency_penalty=0.4),
}


def replies(variant: str, *, drafts: bool) -> dict[str, dict[str, Any]]:
    """Every prompt with every sampling: its tokens and their hash as replies show it.

    All are made side by side, several at a time, with drafts copied from three equal tokens on, or without.
    """
    model = load_model(open_checkpoint(HERE / f"tiny_llama_{variant}"), "float32", lambda phase, share: None)
    backend = TargetBackend(model, Step(model.module), Plan("row-invariant", BUCKETS, BUCKETS), MEMORY)
    compile_buckets(backend, lambda phase, share: None)
    recorder = Recorder()
    lanes = Lanes(backend, time.perf_counter, SETTINGS, recorder)
    for name, prompt in PROMPTS.items():
        for way, sampling in SAMPLINGS.items():
            asked = Request(f"{name}, {way}", tuple(prompt), TOKENS, drafts=drafts, sampling=sampling, least_match=3)
            lanes.admit(asked)
    while lanes.round():
        pass
    assert all(stream.reason == "length" for stream in recorder.finished.values()), "a reply failed"
    return {
        name: {"tokens": tokens, "sha256": token_sha256(tokens)} for name, tokens in sorted(recorder.tokens.items())
    }


def token_sha256(tokens: Sequence[int]) -> str:
    """Of the ids as little-endian int32, as docs/api.md says."""
    return hashlib.sha256(struct.pack(f"<{len(tokens)}i", *tokens)).hexdigest()
