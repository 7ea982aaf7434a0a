"""The speed goals on one H200, and the table that holds what was measured against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.device_window import floor_ms
from benchmarks.windows import llama_of
from tfjax.kernels.specs import SPECS

LLAMA = llama_of(SPECS["Llama-3-8B"], 32)
SMALL = llama_of(SPECS["SmolLM2-135M"], 30, tied=True)
LONG = 32_768
"""Positions of the long context."""
LONG_SHARE = 1.25


@dataclass(frozen=True, slots=True)
class Goal:
    """One number that is to be reached.

    Attributes:
        block, row: where it stands among what was measured.
        limit: what the device can do at best, or what it is compared with; empty where nobody knows.
        goal: None where the number is only reported.
        at_most: whether smaller is better.
        unit: after the numbers.
    """

    block: str
    row: str
    work: str
    limit: str
    goal: float | None
    unit: str
    at_most: bool = True

    def met(self, value: float) -> bool:
        assert self.goal is not None
        return value <= self.goal if self.at_most else value >= self.goal


def _windows() -> list[Goal]:
    limit, work = f"{floor_ms(LLAMA):.2f} ms", "Llama-3-8B shape, bfloat16, context 512, window of"
    most = {1: 4.3, 8: 4.3, 16: 4.3, 64: 4.8}
    return [Goal("windows", f"{n} rows", f"{work} {n} rows", limit, goal, "ms") for n, goal in most.items()]


def _compiling() -> list[Goal]:
    return [
        Goal("compiling", f"{what}, {cache}", f"all buckets of 32 layers, {what}, {cache} cache", "", seconds, "s")
        for what in ("target", "target and drafter")
        for cache, seconds in (("cold", 25.0), ("warm", 5.0))
    ]


def _small() -> list[Goal]:
    plain = f"{1e3 / floor_ms(SMALL):,.0f} tokens/s"
    limits = {"plain": plain, "drafted": f"{plain} x tokens a round"}
    return [
        Goal(block, kind, f"SmolLM2-135M, 1 stream, {where}, {kind}", limits[kind], 1500.0, "tokens/s", at_most=False)
        for block, where in (("small lanes", "lane loop"), ("small http", "over HTTP"))
        for kind in ("plain", "drafted")
    ]


def _lfm2() -> list[Goal]:
    work = {"LFM2.5-1.2B": (1838, 1200.0), "LFM2.5-24B-A2B": (935, 560.0)}
    return [
        Goal(name, how, f"{name} shape, 1 stream plain, {how}", f"{limit:,} tokens/s", goal, "tokens/s", at_most=False)
        for name, (limit, goal) in work.items()
        for how in ("lane loop", "engine")
    ]


def _ratios() -> list[Goal]:
    xla, torch = "XLA: 1", "torch: 1"
    prefill = "Llama-3-8B shape, prefill of 2,048 rows, XLA's time over ours"
    tax = "Llama-3-8B shape, window of {} rows, our time over XLA's fastest, not invariant"
    return [
        Goal("prefill", "speed", prefill, xla, 0.9, "x", at_most=False),
        *(
            Goal(f"peer {name}", "ours", f"{name} shape, 1 row, torch's time over ours", torch, 1.0, "x", at_most=False)
            for name in ("Llama-3-8B", "SmolLM2-135M")
        ),
        *(Goal("tax", f"{rows} rows", tax.format(rows), xla, None, "x") for rows in (1, 16)),
    ]


def _long() -> Goal:
    limit = floor_ms(LLAMA, LONG)
    work = "Llama-3-8B shape, bfloat16, context 32,768, window of 1 row"
    return Goal("long context", "1 rows", work, f"{limit:.2f} ms", LONG_SHARE * limit, "ms")


GOALS: Sequence[Goal] = (*_windows(), _long(), *_lfm2(), *_small(), *_compiling(), *_ratios())


def measured(found: Mapping[str, Any], goal: Goal) -> float | None:
    """The number of a goal; None where it was not measured."""
    block = found.get(goal.block)
    row = block.get(goal.row) if isinstance(block, Mapping) else None
    value = row.get("value") if isinstance(row, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


def table(found: Mapping[str, Any], goals: Sequence[Goal] = GOALS) -> str:
    """Markdown: work | limit | goal | measured | met."""
    lines = ["| work | limit | goal | measured | met |", "|---|---|---|---|---|"]
    return "\n".join(lines + [_line(found, goal) for goal in goals])


def _line(found: Mapping[str, Any], goal: Goal) -> str:
    value = measured(found, goal)
    sign = "<=" if goal.at_most else ">="
    wanted = "reported" if goal.goal is None else f"{sign} {_number(goal.goal)} {goal.unit}"
    if value is None:
        return f"| {goal.work} | {goal.limit or '-'} | {wanted} | {_why_not(found, goal)} | - |"
    met = "-" if goal.goal is None else "yes" if goal.met(value) else "no"
    return (
        f"| {goal.work} | {goal.limit or '-'} | {wanted} | {_number(value)} {goal.unit}{_note(found, goal)} | {met} |"
    )


def _note(found: Mapping[str, Any], goal: Goal) -> str:
    note = _in_a_cell(found[goal.block][goal.row].get("note") or "")
    return f" ({note})" if note else ""


def _why_not(found: Mapping[str, Any], goal: Goal) -> str:
    block = found.get(goal.block)
    if not isinstance(block, Mapping):
        return "not measured"
    row = block.get(goal.row)
    row = row if isinstance(row, Mapping) else {}
    reason = row.get("error") or block.get("error") or (block.get("left_out") or {}).get(goal.row) or ""
    short = _in_a_cell(reason)[:90]
    return f"not measured: {short}" if short else "not measured"


def _in_a_cell(text: object) -> str:
    """On one line, with nothing that ends a column."""
    return " ".join(str(text).replace("|", "/").split())


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
