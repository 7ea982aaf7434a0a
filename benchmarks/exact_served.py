"""A model and its drafter, started as the server starts them, behind as many engines as a proof needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.exact_state import WatchedState
from benchmarks.replies import make
from tfjax.config import ServeConfig
from tfjax.engine.api import Generation
from tfjax.engine.engine import Engine, Served
from tfjax.engine.load import load_engine
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
    def engine(self, backend: Drafted | None = None, *, priced: bool = True) -> Iterator[Engine]:
        """An engine on the backend, or on another one around it, which nobody else uses meanwhile.

        Without prices every stream follows its own rule and none stands aside, so that more is drafted than pays.
        """
        own, settings = backend or self.backend, self.settings
        drafter: Any = own.drafter
        with _without_prices(self.backend) if not priced else nullcontext():
            if not priced:
                settings = replace(settings, first_width=drafter.depth)
            # The loop takes what it knows of times when it is made.
            engine = Engine(own, settings, self.served, max_queue=MOST_WAITING)
        try:
            yield engine
        finally:
            engine.close()


@contextmanager
def _without_prices(backend: Drafted) -> Iterator[None]:
    target: Any = backend.target
    drafter: Any = backend.drafter
    window_ms, hold_ms = target.window_ms, drafter.hold_ms
    target.window_ms, drafter.hold_ms = {}, {}
    try:
        yield
    finally:
        target.window_ms, drafter.hold_ms = window_ms, hold_ms


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
    drafted = Drafted(watched, started.backend.drafter, target.vocab)
    with started.engine(drafted, priced=False) as engine:
        make(engine, [_salted(one, f"serial {i}", draft=False) for i, one in enumerate(generations)], 1)
        watched.is_serial = False
        make(engine, [_salted(one, f"drafted {i}", draft=True) for i, one in enumerate(generations)], streams)
    found: WatchedState = watched
    return found


def _salted(generation: Generation, salt: str, *, draft: bool) -> Generation:
    return replace(generation, draft=draft, cache_salt=salt)
