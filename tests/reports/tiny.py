"""The real engine, sampling and paged attention over a tiny model with random weights."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.models.tiny import TINY, random_llama
from tests.reports.alphabet import TEMPLATE, Alphabet
from tests.reports.remembering import RememberingEngine
from tests.stubs import VOCAB
from tfjax.engine.buckets import Plan
from tfjax.engine.engine import Served
from tfjax.engine.load import compile_buckets
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.step import Bucket, Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Stream
from tfjax.models.llama import FAMILY

LANES, CONTEXT = 18, 128
MEMORY = MemoryPlan(CONTEXT, False, LANES, LANES * CONTEXT // PAGE_ROWS, cache_bytes=0, weight_bytes=0, budget_bytes=0)
BUCKETS = (Bucket(4, 4, 4), Bucket(16, 16, 8))
PLAN = Plan("row-invariant", BUCKETS, BUCKETS)


class ProbedTarget(TargetBackend):
    """Takes a hash of each stream's committed cache rows as its lane is given back, while `probing`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.probing = False
        self.at_release: list[tuple[int, str]] = []

    def release(self, stream: Stream) -> None:
        if self.probing:
            self.at_release.append((stream.cache_length, self.state_probe(stream)))
        super().release(stream)

    def state_probe(self, stream: Stream) -> str:
        """Of keys and values at the positions that the stream has committed, in all layers."""
        digest = hashlib.sha256()
        pages = np.add(stream.pages, 1)
        for pool in jax.tree.leaves(self.state.cache):
            rows = np.asarray(pool.astype(jnp.float32))[pages].swapaxes(1, 2)
            digest.update(np.ascontiguousarray(rows.reshape(-1, *rows.shape[2:])[: stream.cache_length]).tobytes())
        return digest.hexdigest()


def tiny_backend(seed: int = 0) -> ProbedTarget:
    """Compiled; about three seconds. Its vocabulary is the alphabet's."""
    config = replace(TINY, vocab=VOCAB)
    model = LoadedModel(FAMILY, config, random_llama(config, jnp.bfloat16, seed), jnp.bfloat16)
    backend = ProbedTarget(model, Step(model.module), PLAN, MEMORY)
    compile_buckets(backend, lambda phase, share: None)
    return backend


def tiny_engine(backend: TargetBackend, *, block: int = 8, right: float = 1.0, lanes: int = LANES) -> RememberingEngine:
    """An engine on a tiny backend. `block` is the most drafts a round."""
    words: Any = Alphabet(TEMPLATE)
    settings = Settings(
        lanes=lanes, context=CONTEXT, pages=MEMORY.pages, page_rows=PAGE_ROWS, vocab_size=VOCAB,
        draft_tokens=block, first_width=block,
    )  # fmt: skip
    return RememberingEngine(backend, settings, Served("tiny", words, words.eos_ids), right=right)
