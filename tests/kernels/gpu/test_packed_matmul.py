"""Products of packed weights lower for CUDA, for every form and published sizes, and refuse what they cannot take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.gpu.test_lowering import SCALAR, bf16, lower
from tfjax.kernels.gpu import packed_matmul as device
from tfjax.kernels.gpu.packed_matmul import packed_glu, packed_matmul
from tfjax.kernels.gpu.plans import Form, Plan, packed_plan_of, split_of
from tfjax.kernels.packed import WORD_BITS, PackedWeight
from tfjax.kernels.routes import Unsupported
from tfjax.kernels.specs import SPECS

PLANS = [
    Plan(Form.WEIGHTS, 16, 64, 128, 3),
    Plan(Form.MMA, 16, 64, 64, 4),
    Plan(Form.MMA, 64, 64, 64, 3),
    Plan(Form.ROWS, 64, 128, 64, 4),
]


def stack(*shape: int, bits: int = 4, group: int = 64, scales: Any = jnp.bfloat16, dtype: Any = jnp.bfloat16) -> Any:
    """An abstract packed stack."""
    *leading, inner = shape
    words = jax.ShapeDtypeStruct((*leading, inner * bits // WORD_BITS), jnp.uint32)
    part = jax.ShapeDtypeStruct((*leading, inner // group), scales)
    return PackedWeight(words, part, part, bits, group, np.dtype(dtype))


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.form}-{plan.rows}")
@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 128), (8, 64)])
def test_forms(plan: Plan, bits: int, group: int) -> None:
    """Both products in one program."""

    def both(x: Any, weight: Any, bias: Any) -> Any:
        gated = packed_glu(x, weight, jnp.int32(0), jnp.int32(5), plan=plan)
        return gated, packed_matmul(x, weight, jnp.int32(0), jnp.int32(5), split=2, bias=bias, plan=plan)

    lower(both, bf16(64, 512), stack(2, 256, 512, bits=bits, group=group), bf16(2, 256))


SIZES = {size for spec in SPECS.values() for size in spec.products.values()}


@pytest.mark.parametrize(
    ("inner", "columns"),
    [
        pytest.param(*size, marks=() if size in ((14336, 4096), (576, 960)) else pytest.mark.slow)
        for size in sorted(SIZES)
    ],
)
def test_products(inner: int, columns: int) -> None:
    """Groups that do not come out even, by 8 or at all, are staged another way."""
    multiply = functools.partial(packed_matmul, split=split_of(inner, columns))
    for rows in (16, 200):
        lower(multiply, bf16(rows, inner), stack(2, columns, inner), SCALAR, SCALAR)


@pytest.mark.parametrize("name", [pytest.param("Llama-3-8B"), pytest.param("LFM2.5-1.2B", marks=pytest.mark.slow)])
def test_gated_products(name: str) -> None:
    spec = SPECS[name]
    for rows in (16, 128):
        lower(packed_glu, bf16(rows, spec.hidden), stack(2, 2 * spec.inner, spec.hidden), SCALAR, SCALAR)


def test_codes_never_lie_dense_in_device_memory() -> None:
    text = lower(functools.partial(packed_matmul, split=1), bf16(16, 512), stack(2, 256, 512), SCALAR, SCALAR)
    assert "256x512xbf16" not in text.replace(" ", "")
    dense = lower(
        functools.partial(packed_matmul, split=1, dense_first=True), bf16(16, 512), stack(2, 256, 512), SCALAR, SCALAR
    )
    assert "256x512xbf16" in dense.replace(" ", "")


def test_tiles_fit_the_parts() -> None:
    assert packed_plan_of(3584, 4096, 16) == Plan(Form.WEIGHTS, 16, 64, 128, 3)
    assert packed_plan_of(192, 960, 16).inner == 64
    assert packed_plan_of(3584, 4096, 256).form is Form.ROWS
    for part, columns in ((100, 64), (64, 100)):
        with pytest.raises(Unsupported, match="reference route"):
            packed_plan_of(part, columns, 16)


@pytest.mark.parametrize(
    ("rows", "weight", "split", "told"),
    [
        (bf16(16, 384), stack(1, 64, 384, bits=3, group=32), 1, "codes of 3 bits"),
        (bf16(16, 384), stack(1, 64, 384, group=96), 1, "groups of 96"),
        (bf16(16, 384), stack(1, 64, 384, group=128), 2, "no whole groups of 128"),
        (bf16(16, 27648), stack(1, 64, 27648, group=32), 1, "864 groups of 32 columns in a part would take"),
        (bf16(16, 384), stack(1, 64, 384, dtype=jnp.float32), 1, "multiplies bfloat16"),
        (jax.ShapeDtypeStruct((16, 384), jnp.float32), stack(1, 64, 384), 1, "multiplies bfloat16"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_remedy(rows: Any, weight: Any, split: int, told: str) -> None:
    attempt: Callable[..., Any] = functools.partial(packed_matmul, split=split)
    with pytest.raises(Unsupported, match=told):
        lower(attempt, rows, weight, SCALAR, SCALAR)


def test_what_is_refused_for_its_memory_is_what_would_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two matrices' scales in short groups, and one stage too many beside them."""
    operands = bf16(16, 8192), stack(1, 128, 8192, group=32), SCALAR, SCALAR
    fits, too_much = (functools.partial(packed_glu, plan=Plan(Form.WEIGHTS, 16, 64, 128, stages)) for stages in (5, 6))
    lower(fits, *operands)
    with pytest.raises(Unsupported, match="bytes of shared memory"):
        lower(too_much, *operands)
    monkeypatch.setattr(device, "MOST_BYTES", 1 << 30)
    with pytest.raises(ValueError, match="exceeds available shared memory"):
        lower(too_much, *operands)
