"""Rows of a packed table lower for CUDA, whatever number of groups a row has."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.gpu.test_lowering import SCALAR, int32, lower
from tests.kernels.gpu.test_packed_matmul import stack
from tests.kernels.gpu.test_packed_tiles import held
from tfjax.kernels.gpu.embed_rows import embed_packed_rows
from tfjax.kernels.gpu.packed_tiles import row_layout_of_groups
from tfjax.kernels.routes import Unsupported

SIZES = [(4096, 4, 64), (4096, 8, 128), (576, 4, 64), (576, 8, 32), (2048, 4, 128), (2560, 4, 32), (256, 4, 64)]


@pytest.mark.parametrize(("size", "bits", "group"), SIZES)
def test_packed_rows_lower(size: int, bits: int, group: int) -> None:
    text = lower(embed_packed_rows, stack(100, size, bits=bits, group=group), int32(5), SCALAR)
    assert f"100x{size}xbf16" not in text, "the table is not expanded"


@pytest.mark.parametrize(("size", "bits", "group"), SIZES)
def test_every_value_has_a_thread(size: int, bits: int, group: int) -> None:
    shape = (size // group, group * bits // 32, 32 // bits)
    found = held(row_layout_of_groups(*shape), shape)
    assert np.array_equal(np.sort(found.reshape(-1)), np.arange(size))


def test_other_codes_are_refused() -> None:
    with pytest.raises(Unsupported, match="4 and 8 bits"):
        lower(embed_packed_rows, stack(100, 384, bits=3, group=32), int32(5), SCALAR)
