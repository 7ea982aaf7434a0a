from __future__ import annotations

import pytest

from tests.engine.drafters.pair import drafting, loaded, memory_of, started_drafter, started_target
from tfjax.engine.drafters.small_model import SmallModel
from tfjax.engine.target import TargetBackend


@pytest.fixture(scope="session")
def target() -> TargetBackend:
    return started_target(loaded(), memory_of())


@pytest.fixture(scope="session")
def perfect() -> SmallModel:
    """A drafter with the target's own weights."""
    return started_drafter(drafting(loaded()), memory_of())
