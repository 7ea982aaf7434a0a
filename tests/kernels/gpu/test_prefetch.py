"""How much of a matrix is brought ahead."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tfjax.kernels.ahead import Ahead
from tfjax.kernels.gpu.prefetch import BOX, boxes_of

BOX_BYTES = BOX * BOX * 2


def ahead(columns: int, inner: int, split: int, most_bytes: int) -> Ahead:
    weight = jax.ShapeDtypeStruct((3, columns, inner), jnp.bfloat16)
    return Ahead(weight, jnp.int32(0), split, most_bytes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "inner", "split", "most_bytes", "boxes"),
    [
        (4096, 4096, 4, 1 << 30, 256),
        (4096, 4096, 4, 10 * BOX_BYTES + 1, 10),
        (4096, 4096, 1, 0, 0),
        (4096, 4096, 1, BOX_BYTES - 1, 0),
        (100, 4096, 1, 1 << 30, 0),
        (4096, 768, 2, 1 << 30, 0),
    ],
)
def test_whole_boxes_within_the_matrix_and_the_limit(
    columns: int, inner: int, split: int, most_bytes: int, boxes: int
) -> None:
    assert boxes_of(ahead(columns, inner, split, most_bytes)) == boxes


def test_without_a_hint_nothing_is_brought() -> None:
    assert boxes_of(None) == 0
