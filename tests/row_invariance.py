"""Does an operator give each row the same bits whatever rows are computed beside it?

An operator takes arrays whose first axis is the row and returns one such array. Its rows are computed one by one
first; then again in forwards of many sizes, at several offsets, and beside rows that are not finite, huge or widely
spread. Every row has to come out with the bits that it had alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

COUNTS = (1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 129)
"""Rows of a forward: around the sizes where vector code changes its loop, and far above."""

FEW = (1, 2, 5, 8, 17, 129)
"""For operators that are slow to compile."""

Operator = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Violation:
    """A row that came out otherwise than alone."""

    row: int
    rows: int
    offset: int
    beside: str

    def __str__(self) -> str:
        return f"row {self.row} differs at place {self.offset} of {self.rows} rows beside {self.beside} rows"


def bits(array: Any) -> NDArray[np.uint8]:
    """An array's bytes, one more axis at the end."""
    host = np.ascontiguousarray(np.asarray(array))
    return host.view(np.uint8).reshape(*host.shape, -1)


def rows_of_normals(seed: int, rows: int, *shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Ordinary rows: standard normals."""
    return np.random.default_rng(seed).normal(size=(rows, *shape)).astype(np.float32).astype(dtype)


def spread(rows: NDArray[Any], seed: int = 5) -> NDArray[Any]:
    """The rows with every entry scaled by a power of two between 2^-12 and 2^12."""
    powers = np.random.default_rng(seed).integers(-12, 13, rows.shape)
    return (rows.astype(np.float32) * 2.0**powers).astype(rows.dtype)


def violation(
    operator: Operator, *inputs: NDArray[Any], counts: Sequence[int] = COUNTS, least: int = 1
) -> Violation | None:
    """The first row whose bits depend on the forward that it is in.

    Args:
        operator: takes as many arrays as there are inputs.
        inputs: each at least max(counts) rows.
        counts: rows of the forwards.
        least: forwards of fewer rows are not asked for; alone, a row is filled up with copies of it.
    """
    total = len(inputs[0])
    assert total >= max(counts)
    alone = np.concatenate(
        [bits(operator(*(np.repeat(x[row : row + 1], least, 0) for x in inputs)))[:1] for row in range(total)]
    )
    for count in (count for count in counts if count >= least):
        for start in sorted({0, min(1, total - count), total - count}):
            for beside, mine, block in _arrangements(inputs, start, count, hostile=start == total - count):
                found = bits(operator(*block))
                equal = (found == alone[start : start + count]).reshape(count, -1).all(1)
                differs = [place for place in mine if not equal[place]]
                if differs:
                    return Violation(start + differs[0], count, differs[0], beside)
    return None


def assert_row_invariant(
    operator: Operator, *inputs: NDArray[Any], counts: Sequence[int] = COUNTS, least: int = 1
) -> None:
    """Fails naming the first row that differs, its place and its forward."""
    found = violation(operator, *inputs, counts=counts, least=least)
    assert found is None, str(found)


def _arrangements(
    inputs: Sequence[NDArray[Any]], start: int, count: int, *, hostile: bool
) -> list[tuple[str, Sequence[int], list[NDArray[Any]]]]:
    """(what stands beside, places of the rows to compare, the rows of the forward)."""
    block = [x[start : start + count] for x in inputs]
    result: list[tuple[str, Sequence[int], list[NDArray[Any]]]] = [("ordinary", range(count), block)]
    if count < 2 or not hostile:
        return result
    for name, value in (("NaN", np.nan), ("infinite", np.inf), ("huge", 2.0**100)):
        for parity in (0, 1):
            poisoned = [_replace(x, parity, lambda rows, v=value: np.full_like(rows, v)) for x in block]
            result.append((name, range(1 - parity, count, 2), poisoned))
    result.append(("widely spread", range(1, count, 2), [_replace(x, 0, spread) for x in block]))
    return result


def _replace(block: NDArray[Any], parity: int, make: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
    """Every second row replaced, in inputs of floats; indices stay as they are."""
    if np.issubdtype(block.dtype, np.integer) or block.dtype == np.bool_:
        return block
    changed = block.copy()
    changed[parity::2] = make(block[parity::2])
    return changed
