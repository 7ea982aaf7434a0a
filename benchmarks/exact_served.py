"""A model and its drafter, started as the server starts them, behind as many engines as a proof needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.exact_making import make
from benchmarks.exact_state import WatchedState
from tfjax.config import ServeConfig
from tfjax.engine.api import Generation
from tfjax.engine.engine import Engine, Served
from tfjax.engine.load import load_engine
from tfjax.lanes.backend import Backend
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.settings import Settings
from tfjax.terminal import PhaseLines

MOST_WAITING = 4096


@dataclass(frozen=True, slots=True)
class Started:
    """What one start gave.

    Attributes:
        backend: target and drafter.
        about: what /capabilities says that decides the arithmetic and the drafts.
    """

    backend: Drafted
    settings: Settings
    served: Served
    about: dict[str, Any]

    @contextmanager
    def engine(self, backend: Backend | None = None) -> Iterator[Engine]:
        """An engine on the backend, or on another one around it, which nobody else uses meanwhile."""
        engine = Engine(backend or self.backend, self.settings, self.served, max_queue=MOST_WAITING)
        try:
            yield engine
        finally:
            engine.close()


def start(config: ServeConfig) -> Started:
    """Start as `tfjax serve` does.

    Raises:
        RuntimeError: no DSpark drafter drafts.
    """
    progress = PhaseLines()
    engine = load_engine(config, progress)
    progress.close()
    engine.close()
    # The engine's thread is gone, and its parts are all that is wanted here.
    backend: Any = engine._backend
    about = engine.capabilities()
    if not isinstance(backend, Drafted):
        raise RuntimeError(f"nothing drafts: {about['drafter']}")
    facts = {name: about[name] for name in ("arithmetic", "window_ms", "drafter", "dtype")}
    return Started(backend, engine._settings, engine._served, facts)


def compare_states(started: Started, generations: Sequence[Generation], streams: int) -> WatchedState:
    """Make replies alone and plain, then side by side with drafts, and compare the cache after every round."""
    target: Any = started.backend.target
    longest = max(len(generation.prompt) + generation.max_tokens for generation in generations)
    watched: Any = WatchedState(target, longest)
    with started.engine(Drafted(watched, started.backend.drafter, target.vocab)) as engine:
        make(engine, [_salted(one, f"serial {i}", draft=False) for i, one in enumerate(generations)], 1)
        watched.is_serial = False
        make(engine, [_salted(one, f"drafted {i}", draft=True) for i, one in enumerate(generations)], streams)
    found: WatchedState = watched
    return found


def _salted(generation: Generation, salt: str, *, draft: bool) -> Generation:
    return replace(generation, draft=draft, cache_salt=salt)
