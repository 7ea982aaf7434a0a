"""Which tiles a product takes (tuned, free of consequences for bits) and in how many parts it is summed (pinned)."""

from __future__ import annotations

import enum
import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from tfjax.kernels.routes import Unsupported

FEW_ROWS = (8, 16, 32, 64)
"""Row counts of one tile each; more rows are padded to a multiple of TALL_ROWS."""

TALL_ROWS = 128

TALLEST_ROWS = 256
"""Rows of the tallest tile, which two blocks share, and the fewest that are worth it."""


class Form(enum.StrEnum):
    """How a tile is multiplied. Bits are the same."""

    MMA = "mma"
    WEIGHTS = "weights"
    ROWS = "rows"
    TALL = "tall"


@dataclass(frozen=True, slots=True)
class Plan:
    """A tile of the result and how it is fed.

    Attributes:
        rows, columns, inner: sizes of the tile and of one step along the inner axis.
        stages: steps whose operands are in shared memory or on their way.
    """

    form: Form
    rows: int
    columns: int
    inner: int
    stages: int


def padded_rows(rows: int) -> int:
    """Rows that a product of `rows` rows is padded to."""
    few = [size for size in FEW_ROWS if size >= rows]
    return few[0] if few else -(-rows // TALL_ROWS) * TALL_ROWS


@functools.cache
def _table(name: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(resources.files(__package__).joinpath(name).read_text("utf-8"))
    return table


def split_of(inner: int, columns: int) -> int:
    """Parts that a product's inner axis is summed in: the pinned number, else one.

    It is part of the arithmetic: changing an entry changes replies.
    """
    return int(_table("splits.json").get(f"{inner}x{columns}", 1))


def plan_of(inner: int, columns: int, rows: int, *, gated: bool = False, device: str = "h200") -> Plan:
    """The tuned tiles of a product of padded rows, or tiles that fit where none were tuned.

    Raises:
        Unsupported: where no tile fits.
    """
    tuned = _table(f"tiles_{device}.json").get(f"{inner}x{columns}" + (" glu" if gated else ""), {}).get(str(rows))
    if tuned:
        return Plan(Form(tuned["form"]), min(rows, tuned.get("rows", rows)), *(tuned[k] for k in _TILE))
    wide = [size for size in ((64,) if gated else (128, 64)) if columns % size == 0]
    if not wide or inner % 64:
        raise Unsupported(f"a product of {inner} x {columns}, no multiples of 64; use the reference route")
    if rows > FEW_ROWS[-1]:
        return Plan(Form.ROWS, TALL_ROWS, wide[0], 64, 4)
    return Plan(Form.WEIGHTS, rows, wide[-1], 64, 6)


def tall_plan_of(inner: int, columns: int, *, gated: bool = False, device: str = "h200") -> Plan:
    """The tiles of a product of many rows: the tuned ones under `tall`, or ones that fit shared memory.

    Raises:
        Unsupported: where no tile fits.
    """
    name = f"{inner}x{columns}" + (" glu" if gated else "")
    tuned = _table(f"tiles_{device}.json").get(name, {}).get(Form.TALL.value)
    if tuned:
        return Plan(Form.TALL, TALLEST_ROWS, *(tuned[k] for k in _TILE))
    wide = [size for size in (128, 64) if columns % size == 0]
    if not wide or inner % 64:
        raise Unsupported(f"a product of {inner} x {columns}, no multiples of 64; use the reference route")
    return Plan(Form.TALL, TALLEST_ROWS, wide[0], 64, 4 if gated else 6)


def packed_plan_of(part: int, columns: int, rows: int, *, gated: bool = False) -> Plan:
    """The tiles of a product of packed weights, whose inner axis is summed in parts of `part`.

    Raises:
        Unsupported: where no tile fits.
    """
    if columns % 64 or part % 64:
        raise Unsupported(f"parts of {part} x {columns} columns, no multiples of 64; use the reference route")
    # Several blocks share a multiprocessor, so that one expands while another multiplies.
    inner = 128 if part % 128 == 0 and part > 128 else 64
    if rows > FEW_ROWS[-1]:
        return Plan(Form.ROWS, TALL_ROWS, 64 if gated or columns % 128 else 128, 64, 4)
    return Plan(Form.WEIGHTS, rows, 64, inner, 3)


def grouped_plan_of(inner: int, columns: int, tile_rows: int) -> Plan:
    """The tiles of a product of rows that are grouped by expert.

    Raises:
        Unsupported: where no tile fits.
    """
    if columns % 64 or inner % 64:
        raise Unsupported(f"experts of {inner} x {columns}, no multiples of 64; use the reference route")
    # A tile outlives its own step, so that there are two steps at least.
    return Plan(Form.WEIGHTS, tile_rows, 64, min(64, inner // 2), 6)


_TILE = ("columns", "inner", "stages")
