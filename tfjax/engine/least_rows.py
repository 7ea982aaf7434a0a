"""How few rows a product may have here: found by comparing bits before the forwards are compiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import jax
import numpy as np

from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.packed import PackedWeight, Weight

CANDIDATES = (2, 4)
"""Processors with matrix units multiply two bfloat16 rows by another algorithm than three or more."""

LEAST_SIZE = 8
"""Inputs and outputs of the smallest product (see rows_matmul)."""

COMPARED = (8, 33, 128)
"""Row counts whose first rows must equal those of a candidate."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of the comparison.

    Attributes:
        rows: the smallest candidate from which on all row counts agree; None where none does.
        reason: the operator, row count and first differing row that ruled out a candidate, empty where 2 will do.
    """

    rows: int | None
    reason: str


def find_least_rows(weights: Iterable[Weight]) -> Finding:
    """Try every distinct weight shape, packed weights as they are served.

    Shapes: matrices [out, in], and stacks [n, out, in] of which the first is tried; others are passed over, and so is
    what has too few inputs or outputs to be a product's.
    """
    products = [w for w in weights if w.ndim in (2, 3) and min(w.shape[-2:]) >= LEAST_SIZE]
    matrices = list({(w.shape[-2:], str(w.dtype), _form(w)): _matrix(w) for w in products}.values())
    reason = ""
    for candidate in CANDIDATES:
        difference = next(filter(None, (_difference(weight, candidate) for weight in matrices)), None)
        if difference is None:
            return Finding(candidate, reason)
        reason = difference
    return Finding(None, reason)


def _form(weight: Weight) -> str:
    return f"{weight.bits}-bit " if isinstance(weight, PackedWeight) else ""


def _matrix(weight: Weight) -> Weight:
    """A matrix, or the first of a stack."""
    if weight.ndim == 2:
        return weight
    return weight.at(0) if isinstance(weight, PackedWeight) else weight[0]


def _difference(weight: Weight, candidate: int) -> str | None:
    rows = np.random.default_rng(0).standard_normal((max(COMPARED), weight.shape[1])).astype(np.float32)
    x = jax.numpy.asarray(rows).astype(weight.dtype)
    few = np.asarray(_product(x[:candidate], weight))
    for count in COMPARED:
        unequal = (few != np.asarray(_product(x[:count], weight))[:candidate]).any(-1)
        if unequal.any():
            out, size = weight.shape
            return (
                f"rows_matmul of a {_form(weight)}{weight.dtype} weight [{out}, {size}]: row {int(unequal.argmax())} "
                f"of {candidate} rows differs from the same row among {count}"
            )
    return None


_product = jax.jit(rows_matmul)
