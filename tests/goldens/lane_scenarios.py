"""The scenarios whose rounds are kept as goldens in lane_traces.txt. Each is a function named as its heading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.goldens.lane_trace import Trace
from tests.lanes.drafted_harness import GRID_MS, DraftedRun
from tests.lanes.harness import Run, drafter, settings
from tests.stubs import EOS, VOCAB, FakeClock, Script, ScriptedBackend, hashed, listed, looping, teasing
from tfjax.lanes.proposer import Proposer
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request

STEEP_MS = {2: 20.0, 4: 24.0, 8: 32.0, 16: 48.0, 32: 80.0, 64: 140.0}
"""Windows whose rows cost something: shallow drafts pay, deep ones only where they land."""


def request(name: str, script: Script | None = None, *, prompt: int = 6, max_new: int = 24, **more: Any) -> Request:
    tokens = tuple((ord(name[-1]) + 3 * place) % VOCAB for place in range(prompt))
    return Request(name, tokens, max_new, frozenset({EOS}), sampling=script or hashed(ord(name[-1])), **more)


def traced(
    *requests: Request,
    proposer: Callable[[Request], Proposer] | None = None,
    window_ms: dict[int, float] | None = None,
    numbers: Settings | None = None,
) -> str:
    """Requests admitted at once on a scripted target."""
    run = _run(numbers or settings(), proposer, STEEP_MS if window_ms is None else window_ms)
    run.admit(*requests)
    return Trace(run).finish()


def _run(numbers: Settings, proposer: Any, window_ms: dict[int, float]) -> Run:
    clock = FakeClock()
    backend = ScriptedBackend(
        pages=numbers.pages, page_rows=numbers.page_rows, window_ms=window_ms, clock=clock, logprobs=False
    )
    return Run(numbers, proposer, backend, clock)


def plain_alone() -> str:
    """A lone stream without drafts runs one step ahead."""
    return traced(request("a", drafts=False, max_new=8))


def copies_that_land() -> str:
    """A stream that repeats itself, priced: the copies grow."""
    return traced(request("a", looping(8), prompt=20, max_new=48))


def copies_that_slip() -> str:
    """Every few tokens something new: drafts are cut, and the drafter learns."""
    return traced(request("a", looping(8, slip=5), prompt=20, max_new=48))


def copies_that_tease() -> str:
    """What followed the phrase before is no guide to what follows now."""
    return traced(request("a", teasing(7), prompt=20, max_new=44))


def copies_without_prices() -> str:
    """No window was timed: the first width is all that is drafted."""
    return traced(request("a", looping(8), prompt=20, max_new=32), window_ms={}, numbers=settings(first_width=3))


def four_share_rows() -> str:
    """Four manners of drafter share a round's rows by worth over price."""
    modes = {"a": "perfect", "b": "mixed", "c": "wrong", "d": "empty"}
    lengths = {"a": 50, "b": 30, "c": 12, "d": 12}
    return traced(
        *(request(name, prompt=4, max_new=length) for name, length in lengths.items()),
        proposer=lambda asked: drafter(modes[asked.id])(asked),
        numbers=settings(draft_tokens=6),
    )


def a_stop_inside_a_block() -> str:
    """EOS is accepted as a draft: what was drafted after it is neither kept nor sent."""
    return traced(request("a", listed([1, 2, EOS, 4, 5])), proposer=drafter("perfect"), numbers=settings(first_width=6))


def a_neighbour_comes_and_goes() -> str:
    """A second prompt is filled beside a decoding stream, and cancelled later."""
    run = _run(settings(), drafter("mixed"), STEEP_MS)
    trace = Trace(run)
    run.admit(request("a", max_new=24))
    for _ in range(3):
        trace.round()
    run.admit(request("b", prompt=18, max_new=40))
    for _ in range(7):
        trace.round()
    run.lanes.cancel(run.streams["b"])
    return trace.finish()


def pages_run_short() -> str:
    """Three streams and pages for two: one pauses or waits, none is lost."""
    numbers = settings(pages=14, context=32, growth_rows=4)
    return traced(*(request(name, max_new=22) for name in "abc"), proposer=drafter("mixed"), numbers=numbers)


def forced_tokens() -> str:
    """Forced tokens stand before drafts and are kept whatever the target draws."""
    run = _run(settings(), drafter("perfect"), STEEP_MS)
    trace = Trace(run)
    run.admit(request("a", max_new=16))
    trace.round()
    run.streams["a"].forced.extend([7, 8, 9])
    return trace.finish()


def drafted(mode: str, *requests: Request, numbers: Settings | None = None, held: bool = True, **more: Any) -> str:
    """Requests admitted at once on a scripted target with a drafter on the device."""
    target = {"window_ms": STEEP_MS, "held_on_target": held, "logprobs": False}
    run = DraftedRun(numbers or settings(), mode, target=target, **more)
    run.admit(*requests)
    return Trace(run).finish()


def held_drafts_priced() -> str:
    """Two streams, holds with prices: how deep, and for whom, is decided together."""
    return drafted("mixed", request("a"), request("b"), hold_ms=GRID_MS, step_ms=1.0)


def held_drafts_unpriced() -> str:
    """No measured hold: every stream finds its depth by itself."""
    return drafted("perfect", request("a", max_new=40), step_ms=1.0)


def held_drafts_read_back() -> str:
    """A target that cannot take held drafts gets them as host tokens."""
    return drafted("mixed", request("a"), request("b"), held=False, hold_ms=GRID_MS, step_ms=1.0)


def drafts_stand_aside() -> str:
    """Drafts that never land stop, and are tried again at growing distance."""
    return drafted("wrong", request("a", max_new=90), hold_ms=GRID_MS, step_ms=1.0)


SCENARIOS: tuple[Callable[[], str], ...] = (
    plain_alone,
    copies_that_land,
    copies_that_slip,
    copies_that_tease,
    copies_without_prices,
    four_share_rows,
    a_stop_inside_a_block,
    a_neighbour_comes_and_goes,
    pages_run_short,
    forced_tokens,
    held_drafts_priced,
    held_drafts_unpriced,
    held_drafts_read_back,
    drafts_stand_aside,
)


def title(scenario: Callable[[], str]) -> str:
    return scenario.__name__.replace("_", " ")
