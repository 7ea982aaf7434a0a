"""Products of many rows lower for CUDA at published sizes, and few rows take the forms for few."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.gpu.test_lowering import SCALAR, bf16, lower
from tests.row_invariance import bits
from tfjax.kernels.gpu import layer_matmul as few
from tfjax.kernels.gpu.launch import Launch
from tfjax.kernels.gpu.plans import TALLEST_ROWS, Form, Plan, split_of, tall_plan_of
from tfjax.kernels.gpu.tall_matmul import tall_glu, tall_matmul
from tfjax.kernels.layer_matmul import layer_matmul
from tfjax.kernels.reduce import in_order
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


STEP = 64
SIZES_OF_STEPS = 2.0 ** np.array([18, 0, 0, 0, 18, 0])
"""By which the inputs of each step differ: its sum is exact, and adding it to others rounds by their order."""


def told_by_order() -> dict[str, Any]:
    """Rows, a stack and biases whose sums have other bits in another order of steps, of parts or of the bias."""
    random = np.random.default_rng(0)
    inner, columns = STEP * len(SIZES_OF_STEPS), 128
    x, weight = (random.integers(-8, 9, shape) for shape in ((TALLEST_ROWS, inner), (2, columns, inner)))
    bias = 100 * random.normal(size=(2, columns))
    sized = x * np.repeat(SIZES_OF_STEPS, STEP)
    return {
        name: jnp.asarray(value, jnp.bfloat16) for name, value in (("x", sized), ("weight", weight), ("bias", bias))
    }


@pytest.mark.slow
@pytest.mark.parametrize("gated", [False, True])
def test_the_interpreter_adds_in_the_order_of_few_rows(gated: bool) -> None:
    """Step after step, the bias to the first part, part after part: the bits are those of a window's rows."""
    operands, own, layer, how = told_by_order(), slice(100, 164), jnp.int32(1), Launch(interpret=True)
    window = operands | {"x": operands["x"][own]}
    counted = functools.partial(dict, layer=layer, how=how)
    if gated:
        found = tall_glu(**operands, **counted(count=jnp.int32(TALLEST_ROWS)))
        wanted = few.layer_glu(**window, **counted(count=jnp.int32(64)))
    else:
        found = tall_matmul(**operands, **counted(count=jnp.int32(TALLEST_ROWS)), split=2)
        wanted = in_order(few.layer_matmul(**window, **counted(count=jnp.int32(64)), split=2))
    assert np.array_equal(bits(found[own]), bits(wanted))
