"""The bias of a product lowers for CUDA in every form of its tile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests.kernels.gpu.test_lowering import FORMS, SCALAR, bf16, lower
from tfjax.kernels.gpu.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.gpu.plans import Form, Plan


@pytest.mark.parametrize("plan", [Plan(Form.WEIGHTS, 8, 128, 64, 4), *FORMS], ids=lambda x: f"{x.form}-{x.rows}")
@pytest.mark.parametrize("gated", [False, True])
def test_a_bias_lowers(plan: Plan, gated: bool) -> None:
    height = 512 if gated else 256
    multiply: Callable[..., Any] = layer_glu if gated else functools.partial(layer_matmul, split=2)

    def biased(x: Any, weight: Any, bias: Any, layer: Any, count: Any) -> Any:
        return multiply(x, weight, layer, count, bias=bias, plan=plan)

    lower(biased, bf16(64, 512), bf16(2, height, 512), bf16(2, height), SCALAR, SCALAR)
