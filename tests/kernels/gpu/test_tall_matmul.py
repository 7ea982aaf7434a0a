"""Products of many rows lower for CUDA at published sizes, and few rows take the forms for few."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.gpu.test_lowering import SCALAR, bf16, lower
from tfjax.kernels.gpu.launch import Launch
from tfjax.kernels.gpu.plans import TALLEST_ROWS, Form, Plan, split_of, tall_plan_of
from tfjax.kernels.gpu.tall_matmul import tall_glu, tall_matmul
from tfjax.kernels.layer_matmul import layer_matmul
from tfjax.kernels.routes import Unsupported
from tfjax.kernels.specs import SPECS

FAST = {(14336, 4096), (576, 960)}
SIZES = sorted({size for spec in SPECS.values() for size in spec.products.values()})


@pytest.mark.parametrize(
    ("inner", "columns"), [pytest.param(*size, marks=() if size in FAST else pytest.mark.slow) for size in SIZES]
)
def test_products(inner: int, columns: int) -> None:
    multiply = functools.partial(tall_matmul, split=split_of(inner, columns))
    for rows in (200, 300):
        text = lower(multiply, bf16(rows, inner), bf16(2, columns, inner), SCALAR, SCALAR)
        assert ("tall_matmul_" in text) == (rows >= TALLEST_ROWS)
    lower(
        lambda x, weight, bias: multiply(x, weight, jnp.int32(1), jnp.int32(3), bias=bias),
        bf16(512, inner),
        bf16(2, columns, inner),
        bf16(2, columns),
    )


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x == "Llama-3-8B" else pytest.mark.slow) for x in SPECS])
def test_gated_products(name: str) -> None:
    spec = SPECS[name]
    text = lower(tall_glu, bf16(512, spec.hidden), bf16(2, 2 * spec.inner, spec.hidden), SCALAR, SCALAR)
    assert "tall_glu_" in text


def test_tiles_fit() -> None:
    assert tall_plan_of(4096, 6144) == Plan(Form.TALL, TALLEST_ROWS, 128, 64, 6)
    assert tall_plan_of(576, 960).columns == 64
    assert tall_plan_of(4096, 14336, gated=True).stages == 4
    for size in ((100, 64), (64, 100)):
        with pytest.raises(Unsupported, match="reference route"):
            tall_plan_of(*size)


def test_what_does_not_fit_is_refused_with_the_remedy() -> None:
    with pytest.raises(Unsupported, match="in 3 parts is no whole number"):
        lower(functools.partial(tall_matmul, split=3), bf16(256, 256), bf16(1, 64, 256), SCALAR, SCALAR)


@pytest.mark.slow
def test_the_interpreter_walks_several_tiles() -> None:
    """Two tiles of rows by two of columns, fewer stages than steps, parts and a bias."""
    random = np.random.default_rng(0)
    x, weight, bias = (
        jnp.asarray(random.normal(size=shape), jnp.bfloat16) for shape in ((300, 256), (2, 128, 256), (2, 128))
    )
    plan, layer, count = Plan(Form.TALL, TALLEST_ROWS, 64, 64, 2), jnp.int32(1), jnp.int32(300)
    run: Any = functools.partial(tall_matmul, plan=plan, how=Launch(interpret=True))
    found = run(x, weight, layer, count, split=2, bias=bias)
    wanted = layer_matmul(x, weight, layer, count, split=2, bias=bias).sum(0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)
