"""Products of a prompt's rows have the bits of the parts added by their readers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.kernels.test_layer_matmul import LAYERS, OUT, SIZE, normals, same
from tfjax.kernels.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.sum_norm import sum_norm
from tfjax.kernels.tall_matmul import tall_glu, tall_matmul

LAYER, COUNT = jnp.int32(1), jnp.int32(9)


def test_a_reader_of_the_sum_has_the_bits_of_a_reader_of_parts() -> None:
    x, weight, bias = normals(1, 9, SIZE), normals(2, LAYERS, OUT, SIZE), normals(3, LAYERS, OUT)
    parts = layer_matmul(x, weight, LAYER, COUNT, split=4, bias=bias)
    total = tall_matmul(x, weight, LAYER, COUNT, split=4, bias=bias)
    residual, norm = normals(4, 9, OUT), normals(5, LAYERS, OUT)
    run = jax.jit(lambda parts: sum_norm(parts, residual, norm, LAYER, COUNT, eps=1e-5))
    for one, other in zip(run(parts), run(total[None]), strict=True):
        assert same(one, other)


def test_gates_are_those_of_few_rows() -> None:
    x, weight = normals(1, 9, SIZE), normals(2, LAYERS, OUT, SIZE)
    assert same(tall_glu(x, weight, LAYER, COUNT), layer_glu(x, weight, LAYER, COUNT))
    assert np.isfinite(np.asarray(tall_glu(x, weight, LAYER, COUNT), np.float32)).all()
