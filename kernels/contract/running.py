"""Runs gates and controls of the kernels that a machine can run."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import jax

from tfjax.kernels.contract.controls import Control, faulty
from tfjax.kernels.contract.gates import GATES, Candidate, Outcome, run_gate
from tfjax.kernels.contract.problem import Call, Problem, Style, Subject
from tfjax.kernels.contract.report import ControlResult, GateResult, Report
from tfjax.kernels.contract.subjects import SUBJECTS
from tfjax.kernels.routes import Route

type Job = Callable[[], GateResult | ControlResult]

ALL_COUNTS = tuple(range(1, 130))
CONTROL_COUNTS = (1, 2, 3, 5, 8)

COMPILED_TOGETHER = 8
"""Gates that run at once on a device."""

INTERPRETED_ROWS = "the interpreter multiplies by XLA's products on the CPU, whose bits are not the device's"
TOO_LARGE = "published sizes take a CPU too long; it runs a small one"
NO_TIME = "the time given was up"
NO_GUARDS = "the reference route writes no memory of its own"


def candidate_of(subject: Subject, route: Route, *, interpret: bool, module: ModuleType | None = None) -> Candidate:
    """A subject's implementation, or that of a module that stands in for it."""
    if route is Route.REFERENCE:
        return Candidate(functools.partial(subject.public, route=route), None)
    from tfjax.kernels.gpu.launch import Launch

    call: Call = getattr(module or importlib.import_module(subject.device), subject.name)
    plain = functools.partial(call, how=Launch(interpret=interpret))
    variants = (
        [] if interpret else [(b, _named(more), functools.partial(plain, **more)) for b, more in subject.variants]
    )
    return Candidate(plain, functools.partial(call, how=Launch(interpret=interpret, guard=1)), variants)


def _named(keywords: Mapping[str, Any]) -> str:
    return ", ".join(str(value) for value in keywords.values())


def run(
    only: Sequence[str] = (),
    *,
    route: Route = Route.PALLAS_GPU,
    say: Callable[[str], None] = print,
    counts: Sequence[int] = ALL_COUNTS,
    seconds: float = math.inf,
    together: int = COMPILED_TOGETHER,
) -> Report:
    """The contract of the named kernels, or of all.

    Args:
        counts: row counts of the rows gate.
        seconds: gates and controls that have not begun by then are reported as not run.
        together: how many run at once on a device; compilation takes most of their time.
    """
    device = jax.devices()[0]
    small_only = device.platform == "cpu"
    interpret = route is Route.PALLAS_GPU and device.platform != "gpu"
    report = Report(str(route), f"{device.device_kind}{' (interpreter)' if interpret else ''}, jax {jax.__version__}")
    end = time.monotonic() + seconds
    small: list[Job] = []
    controls: list[Job] = []
    large: list[Job] = []
    for name, subject in SUBJECTS.items():
        if only and name not in only:
            continue
        candidate = candidate_of(subject, route, interpret=interpret)
        for case, make in {"small": subject.small, **subject.cases}.items():
            slow = TOO_LARGE if small_only and case != "small" else ""
            (small if case == "small" else large).extend(
                functools.partial(
                    _gate,
                    name,
                    case,
                    gate,
                    make,
                    candidate,
                    counts,
                    reason=slow or _reason(gate, candidate, interpret=interpret),
                    end=end,
                )
                for gate in GATES
            )
        if route is Route.PALLAS_GPU:
            controls.extend(
                functools.partial(_control, subject, control, interpret=interpret, end=end)
                for control in subject.controls
            )
    # The interpreter keeps a state that its kernels share.
    with ThreadPoolExecutor(1 if interpret else together) as pool:
        for result in pool.map(lambda job: job(), [*small, *controls, *large]):
            say(result.line)
            if isinstance(result, GateResult):
                report.gates.append(result)
            else:
                report.controls.append(result)
    return report


def _reason(gate: str, candidate: Candidate, *, interpret: bool) -> str:
    """Why a gate is not run, or nothing."""
    if gate == "rows" and interpret:
        return INTERPRETED_ROWS
    if gate == "bounds" and candidate.guarded is None:
        return NO_GUARDS
    return ""


def _gate(
    name: str,
    case: str,
    gate: str,
    make: Callable[[Style], Problem],
    candidate: Candidate,
    counts: Sequence[int],
    *,
    reason: str,
    end: float,
) -> GateResult:
    if not reason and time.monotonic() > end:
        reason = NO_TIME
    if reason:
        return GateResult(name, case, gate, None, reason)
    start = time.perf_counter()
    try:
        outcome = run_gate(gate, make, candidate, counts)
    except Exception as error:  # noqa: BLE001 - a kernel that does not run fails its gate; the others still run
        outcome = Outcome(False, f"{type(error).__name__}: {str(error)[:300]}")
        _forget_interpreter()
    return GateResult(name, case, gate, outcome.passed, outcome.detail, time.perf_counter() - start)


def _control(subject: Subject, control: Control, *, interpret: bool, end: float) -> ControlResult:
    result = functools.partial(ControlResult, subject.name, control.name, control.gate)
    if control.gate == "rows" and interpret:
        return result(None, INTERPRETED_ROWS)
    if time.monotonic() > end:
        return result(None, NO_TIME)
    try:
        module = faulty(subject.device, control)
        candidate = candidate_of(subject, Route.PALLAS_GPU, interpret=interpret, module=module)
        outcome = run_gate(control.gate, subject.small, Candidate(candidate.call, candidate.guarded), CONTROL_COUNTS)
    except Exception as error:  # noqa: BLE001 - reported as missed: no gate found it
        _forget_interpreter()
        return result(False, f"{type(error).__name__}: {str(error)[:300]}")
    return result(not outcome.passed, outcome.detail)


def _forget_interpreter() -> None:
    """After an error the interpreter's next kernels would fail too."""
    with contextlib.suppress(ImportError):
        from jax._src.pallas.mosaic_gpu.interpret.gpu_callbacks import reset_gpu_interpret_mode_state

        reset_gpu_interpret_mode_state()
