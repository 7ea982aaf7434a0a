"""Engines for the bench tests: every request has its own text, drafts make it come faster, and one may lie."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from tests.server.fake_engine import FakeEngine
from tfjax.engine.api import Generation


def own_text(generation: Generation) -> Iterator[int]:
    """Letters and spaces that follow from prompt, seed and temperature."""
    place = 0
    key = f"{generation.prompt} {generation.sampling.seed} {generation.sampling.temperature}"
    while True:
        digest = hashlib.sha256(f"{key} {place}".encode()).digest()
        yield from (b"abcdefghijklmnopqrstuvwxyz     "[byte % 31] for byte in digest)
        place += 1


def lying(generation: Generation) -> Iterator[int]:
    """As `own_text`, but drafted replies differ in their sixth token."""
    for place, token in enumerate(own_text(generation)):
        yield token ^ 1 if generation.draft and place == 5 else token


def scripted_engine(script: Callable[[Generation], Iterator[int]] = own_text, **options: Any) -> FakeEngine:
    """Four tokens a round of a drafted stream, one a round of another."""
    return FakeEngine(script, **{"parallel": 8, "max_queue": 64, "per_round": 4, "plain_per_round": 1, **options})
