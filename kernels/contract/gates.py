"""The four gates of the contract."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.kernels.contract.problem import STRESS, Call, Problem, Style

GATES = ("rows", "reference", "stress", "bounds")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a gate found. `margin` is the least of bound over error, where errors were measured."""

    passed: bool
    detail: str
    margin: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One implementation of a kernel.

    Attributes:
        call: what is checked.
        guarded: the same, started with guards around its outputs; None where it cannot be.
        variants: the same with other tiles, each with the bucket that it takes.
    """

    call: Call
    guarded: Call | None
    variants: Sequence[tuple[int, str, Call]] = ()


_PROGRAMS: dict[Any, Callable[..., Any]] = {}


def _program(problem: Problem, call: Call) -> Callable[..., Any]:
    """A problem's step, compiled once for all problems of its key."""
    # The call is part of the value too, so that its identity stays its own.
    key = (type(problem), problem.key, id(call))
    return _PROGRAMS.setdefault(key, jax.jit(functools.partial(problem.step, call)))


def _bits(x: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(x, {2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize])


@jax.jit
def _differing(alone: Any, found: Any, select: jax.Array, count: jax.Array) -> jax.Array:
    """First place whose row is not what it was alone, or the bucket's size. Shape: int32 []."""
    place = jnp.arange(len(select))
    equal = jnp.ones(len(select), bool)
    for before, now in zip(alone, found, strict=True):
        same = _bits(before[select]) == _bits(now)
        equal &= jnp.all(same.reshape(len(select), -1), 1)
    return jnp.min(jnp.where(equal | (place >= count), len(select), place)).astype(jnp.int32)


def _bucket(problem: Problem, count: int) -> int:
    return next(bucket for bucket in problem.buckets if bucket >= count)


def rows_gate(problem: Problem, candidate: Candidate, counts: Sequence[int]) -> Outcome:
    """Every row alone, then in forwards of all counts, at two offsets, in every placement, beside NaN."""
    run = _program(problem, candidate.call)
    least = problem.buckets[0]
    first = problem.places[0]
    singles = [run(problem.data, problem.arrange([row], least, first))[0] for row in range(problem.rows)]
    alone = [jnp.stack([outputs[i][0] for outputs in singles]) for i in range(len(singles[0]))]
    if not all(bool(jnp.all(jnp.isfinite(x))) for x in alone):
        return Outcome(False, "a row that stands alone is not finite")
    checked = 0

    def difference(program: Callable[..., Any], rows: Sequence[int], bucket: int, place: str) -> str | None:
        nonlocal checked
        arranged = problem.arrange(rows, bucket, place)
        found, _ = program(problem.data, arranged)
        at = int(_differing(alone, list(found), arranged["select"], arranged["count"]))
        checked += len(rows)
        return None if at == bucket else f"row {rows[at]} at place {at} of {len(rows)} rows in {bucket} ({place})"

    for count in (count for count in counts if count <= problem.rows):
        for offset in sorted({0, problem.rows - count}):
            for place in problem.places:
                rows = range(offset, offset + count)
                if fault := difference(run, rows, _bucket(problem, count), place):
                    return Outcome(False, fault)
    scattered = np.random.default_rng(1).permutation(problem.rows)[: problem.buckets[-1]].tolist()
    if fault := difference(run, scattered, _bucket(problem, len(scattered)), first):
        return Outcome(False, f"{fault}, scattered")
    for bucket, name, call in candidate.variants:
        rows = range(min(bucket, problem.rows))
        if fault := difference(_program(problem, call), rows, bucket, first):
            return Outcome(False, f"{fault}, {name}")
    return Outcome(True, f"{checked} rows equal, {len(candidate.variants)} other tiles")


def _numeric(
    problem: Problem, candidate: Candidate, error: Callable[[Any], tuple[float, float]], rows: Sequence[int]
) -> Outcome:
    """The largest error over its bound, of all outputs."""
    found, _ = _program(problem, candidate.call)(
        problem.data, problem.arrange(rows, _bucket(problem, len(rows)), problem.places[-1])
    )
    outputs = [np.asarray(x)[: len(rows)] for x in found]
    worst, told = np.inf, []
    for judged in problem.judge(rows, outputs):
        size, bound = error(judged)
        margin = bound / size if size > 0 else np.inf
        margin = margin if np.isfinite(size) else 0.0
        worst = min(worst, margin)
        told.append(f"{judged.name} {size:.1e} of {bound:.0e}")
    return Outcome(bool(worst >= 1), ", ".join(told), float(worst))


def _of_rows(judged: Any) -> tuple[float, float]:
    flat = judged.wanted.reshape(len(judged.wanted), -1)
    off = (judged.found - judged.wanted).reshape(len(flat), -1)
    norm = np.maximum(np.linalg.norm(flat, axis=1), 1e-30)
    return float(np.max(np.linalg.norm(off, axis=1) / norm)), judged.bound


def _of_elements(judged: Any) -> tuple[float, float]:
    return float(np.max(np.abs(judged.found - judged.wanted) / np.maximum(judged.scale, 1e-30))), judged.stress_bound


def _judged_rows(problem: Problem) -> list[int]:
    """Some rows, the first and the last among them."""
    return sorted({int(x) for x in np.linspace(0, problem.rows - 1, min(problem.rows, 24))})


def reference_gate(problem: Problem, candidate: Candidate) -> Outcome:
    """Rows' relative errors against float64."""
    return _numeric(problem, candidate, _of_rows, _judged_rows(problem))


def stress_gate(make: Callable[[Style], Problem], candidate: Candidate) -> Outcome:
    """Elements' errors over the size of their sums, for numbers of wide range, that cancel, and that are positive."""
    outcomes = {}
    for style in STRESS:
        problem = make(style)
        outcomes[style] = _numeric(problem, candidate, _of_elements, _judged_rows(problem))
    worst = min(outcomes, key=lambda style: outcomes[style].margin or 0)
    detail = f"least margin {outcomes[worst].margin:.1f} ({worst}: {outcomes[worst].detail})"
    return Outcome(all(x.passed for x in outcomes.values()), detail, outcomes[worst].margin)


def bounds_gate(problem: Problem, candidate: Candidate) -> Outcome:
    """Guards around every output, for no row, one, almost all and all; every element of a row that counts written."""
    if candidate.guarded is None:
        raise ValueError("a call without guards has no bounds gate")
    run = _program(problem, candidate.guarded)
    place = problem.places[-1]
    for bucket in {problem.buckets[0], _bucket(problem, problem.rows)}:
        most = min(bucket, problem.rows)
        for count in sorted({0, 1, most - 1, most}):
            rows = range(problem.rows - count, problem.rows)
            outputs, strayed = run(problem.data, problem.arrange(rows, bucket, place))
            if int(strayed):
                return Outcome(False, f"{int(strayed)} places that no row owns changed at {count} of {bucket} rows")
            whole: list[NDArray[Any]] = [np.asarray(jnp.all(jnp.isfinite(x[:count]))) for x in outputs]
            if not all(whole):
                return Outcome(False, f"a guard was written or an element was not, at {count} of {bucket} rows")
    return Outcome(True, "no write outside")


def run_gate(gate: str, make: Callable[[Style], Problem], candidate: Candidate, counts: Sequence[int]) -> Outcome:
    """One gate by name."""
    if gate == "stress":
        return stress_gate(make, candidate)
    problem = make(Style.NORMAL)
    gates: Mapping[str, Callable[[], Outcome]] = {
        "rows": lambda: rows_gate(problem, candidate, counts),
        "reference": lambda: reference_gate(problem, candidate),
        "bounds": lambda: bounds_gate(problem, candidate),
    }
    return gates[gate]()
