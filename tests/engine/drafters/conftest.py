from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.engine.drafters.pair import drafting, loaded, memory_of, started_drafter, started_target
from tests.engine.drafters.spark_pair import (
    TARGET,
    all_knowing_spark,
    forgetful_llama,
    loaded_llama,
    random_spark,
    started_spark,
    tapped_target,
)
from tests.engine.drafters.spark_stage import MEMORY, Stage
from tests.models.tiny import random_llama
from tests.train.tiny_lfm2 import CONFIG, write_model
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.drafters.small_model import SmallModel
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import load_model


@pytest.fixture(scope="session")
def target() -> TargetBackend:
    return started_target(loaded(), memory_of())


@pytest.fixture(scope="session")
def perfect() -> SmallModel:
    """A drafter with the target's own weights."""
    return started_drafter(drafting(loaded()), memory_of())


@pytest.fixture(scope="session")
def random_stage() -> Stage:
    model = random_llama(TARGET, np.float32)
    loaded = loaded_llama(model)
    target, spark = tapped_target(loaded, MEMORY), random_spark(model)
    return Stage(loaded, target, spark, started_spark(spark, target))


@pytest.fixture(scope="session")
def handed_stage(random_stage: Stage) -> Stage:
    """The same, of which a forward's results lie in memory of earlier ones, as on a GPU."""
    loaded, spark = random_stage.model, random_stage.spark
    target = tapped_target(loaded, MEMORY, hands_round=True)
    return Stage(loaded, target, spark, started_spark(spark, target, like=random_stage.drafter))


@pytest.fixture
def stage(random_stage: Stage) -> Iterator[Stage]:
    """A random target and a random drafter that share nothing but the embedding: drafts rarely land."""
    random_stage.drafter = random_stage.fresh()
    yield random_stage
    assert not random_stage.drafter._lanes


@pytest.fixture(scope="session")
def perfect_stage(random_stage: Stage) -> Stage:
    """A drafter that knows what the target says next."""
    model = forgetful_llama()
    loaded = loaded_llama(model)
    target, spark = tapped_target(loaded, MEMORY, random_stage.target), all_knowing_spark(model)
    return Stage(loaded, target, spark, started_spark(spark, target, like=random_stage.drafter))


@pytest.fixture(scope="session")
def lfm2_stage(random_stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A target with short convolutions, attention and experts, and a random drafter."""
    directory = write_model(tmp_path_factory.mktemp("lfm2"), replace(CONFIG, vocab=TARGET.vocab))
    loaded = load_model(open_checkpoint(directory), "float32", lambda phase, share: None)
    target, spark = tapped_target(loaded, MEMORY), random_spark(loaded.module)
    return Stage(loaded, target, spark, started_spark(spark, target, like=random_stage.drafter))
