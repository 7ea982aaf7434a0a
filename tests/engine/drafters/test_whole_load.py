"""From two checkpoints on disk to replies: what the command line does, without the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.drafters.drafter_files import LLAMA_HF, llama_directory, small_directory
from tests.engine.scripted_engine import Receiver
from tests.models.test_small_drafter import HF as SMALL_HF
from tfjax.config import ServeConfig
from tfjax.engine.api import Generation, Sampling
from tfjax.engine.engine import Engine
from tfjax.engine.load import load_engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TARGET_HF = LLAMA_HF | {"vocab_size": 264, "hidden_size": 40, "max_position_embeddings": 256}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("models")
    target = llama_directory(folder / "target", config=TARGET_HF)
    drafter = small_directory(folder / "little", config=SMALL_HF | {"vocab_size": 264})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        config = ServeConfig(
            model=str(target), drafter=str(drafter), dtype="float32", parallel=2, drafter_depth=4, prompt_cache_gib=0.0
        )
        engine = load_engine(config, lambda phase, share: None)
    yield engine
    engine.close()


def test_capabilities_name_the_drafter(engine: Engine) -> None:
    said: dict[str, Any] = dict(engine.capabilities())
    assert said["drafters"] == ["copy", "small"]
    drafter = said["drafter"]
    assert (drafter["name"], drafter["depth"], drafter["draft_vocab"]) == ("little", 4, 24)
    assert set(drafter["hold_ms"]) == {"1", "2"}
    assert said["memory"]["weight_bytes"] > drafter["weight_bytes"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_replies_are_the_plain_ones(engine: Engine, temperature: float) -> None:
    asked = [Generation(f"r{n}", (5, 9 + n, 60), 60, Sampling(temperature=temperature, seed=n)) for n in range(4)]
    compiled = engine.metrics()["compiles_total"]
    found = []
    for draft in (False, True):
        receivers = [Receiver() for _ in asked]
        for one, receiver in zip(asked, receivers, strict=True):
            engine.submit(Generation(one.id, one.prompt, 60, one.sampling, draft=draft), receiver)
        found.append([receiver.wait() and receiver.tokens for receiver in receivers])
    assert found[0] == found[1]
    assert engine.metrics()["compiles_total"] == compiled
