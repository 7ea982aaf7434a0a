from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.row_invariance import assert_row_invariant, rows_of_normals
from tfjax.models.blocks.mlp import GatedMLP


def made(dtype: type) -> GatedMLP:
    block = GatedMLP(24, 40, bias=False, dtype=dtype)
    block.gate_up.weight[...] = jnp.asarray(rows_of_normals(0, 80, 24), dtype)
    block.down.weight[...] = jnp.asarray(rows_of_normals(1, 24, 40), dtype)
    return block


def test_gates_the_second_half_with_the_first() -> None:
    x, gate_up, down = rows_of_normals(2, 5, 24), rows_of_normals(0, 80, 24), rows_of_normals(1, 24, 40)
    gate, up = np.split(x.astype(np.float64) @ gate_up.T, 2, -1)
    wanted = (gate / (1 + np.exp(-gate)) * up) @ down.T
    np.testing.assert_allclose(made(jnp.float32)(jnp.asarray(x)), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_rows_are_invariant(dtype: type) -> None:
    block = jax.jit(made(jnp.dtype(dtype)))
    assert_row_invariant(block, rows_of_normals(3, 140, 24, dtype=dtype), counts=(4, 8, 33), least=4)
