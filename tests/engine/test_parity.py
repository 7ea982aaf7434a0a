"""On the real weights in float32: the tokens and logits that transformers gives for the same weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.scripted_engine import Receiver
from tests.models.tiny import Part, Streams
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.buckets import Plan
from tfjax.engine.engine import Engine, Served
from tfjax.engine.load import compile_buckets
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.step import Bucket, Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel, load_model
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.settings import Settings
from tfjax.text.loading import load_tokenizer
from tfjax.text.tokenizer import Tokenizer

pytestmark = [pytest.mark.weights, pytest.mark.slow, pytest.mark.timeout(600)]

GOLDENS = Path(__file__).parents[1] / "goldens"
LANES, CONTEXT = 5, 256
MEMORY = MemoryPlan(CONTEXT, False, LANES, LANES * CONTEXT // PAGE_ROWS, cache_bytes=0, weight_bytes=0, budget_bytes=0)
BUCKETS = (Bucket(4, 4, 4), Bucket(16, 16, 4))
PLAN = Plan("row-invariant", BUCKETS, (*BUCKETS, Bucket(128, 4, 128)))


@dataclass(frozen=True, slots=True)
class Real:
    """The default model in float32."""

    model: LoadedModel
    tokenizer: Tokenizer


@pytest.fixture(scope="module")
def real(smollm2_gguf: Path) -> Real:
    checkpoint = open_checkpoint(smollm2_gguf)
    return Real(load_model(checkpoint, "float32", lambda phase, share: None), load_tokenizer(checkpoint))


def greedy_entries() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((GOLDENS / "smollm2_greedy.json").read_text())["entries"]
    return [entry for entry in entries if entry["engine"].startswith("transformers")]


def test_greedy_ids(real: Real) -> None:
    """Several prompts at once, with copy drafts and without."""
    backend = TargetBackend(real.model, Step(real.model.module), PLAN, MEMORY)
    compile_buckets(backend, lambda phase, share: None)
    settings = Settings(
        lanes=LANES, context=CONTEXT, pages=MEMORY.pages, page_rows=PAGE_ROWS, vocab_size=backend.vocab, first_width=3
    )
    engine = Engine(backend, settings, Served("smollm2", real.tokenizer, real.tokenizer.eos_ids))
    entries = greedy_entries()
    assert len(entries) >= 3
    drafted = 0
    for draft in (False, True):
        receivers = [Receiver() for _ in entries]
        for entry, receiver in zip(entries, receivers, strict=True):
            ids = real.tokenizer.encode(entry["prompt"])
            assert ids == entry["prompt_ids"]
            asked = Generation("x", tuple(ids), 64, Sampling(temperature=0.0), ignore_eos=True, draft=draft)
            engine.submit(asked, receiver)
        for entry, receiver in zip(entries, receivers, strict=True):
            assert receiver.ended.wait(300)
            assert receiver.tokens == entry["token_ids"], entry["prompt"]
            drafted += receiver.wait().stats.drafted
    engine.close()
    assert drafted > 0


def test_logits(real: Real) -> None:
    module: Any = real.model.module
    for entry in json.loads((GOLDENS / "smollm2_logits.json").read_text())["entries"]:
        streams = Streams(module)
        streams.tokens[0, : len(entry["ids"])] = entry["ids"]
        for start in range(0, len(entry["ids"]), 64):
            streams.forward(64, Part(0, start, min(start + 64, len(entry["ids"]))), tile_rows=64)
        for position, ids, logits in zip(entry["positions"], entry["top_ids"], entry["top_logits"], strict=True):
            found = streams.logits[0, position]
            assert np.argsort(-found, kind="stable")[: len(ids)].tolist() == ids
            np.testing.assert_allclose(found[ids], logits, rtol=1e-4, atol=2e-3)
