"""What is timed of experts is what a window of the server runs."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest

from benchmarks.device_experts import LAYERS, ROWS, _choice, _layers, _plans
from tfjax.kernels.gpu.plans import padded_rows
from tfjax.kernels.grouped_matmul import WindowTiles, tiles_of
from tfjax.kernels.specs import SPECS

SPEC = SPECS["lfm2-moe-code"]


@pytest.mark.parametrize("rows", ROWS)
def test_each_window_lowers_by_the_layout_of_the_server(rows: int) -> None:
    choice, bucket = jnp.asarray(_choice(SPEC, rows)), padded_rows(rows)
    layout = functools.partial(tiles_of, experts=SPEC.experts, picked=SPEC.picked)
    assert isinstance(layout(choice[0], jnp.int32(rows)), WindowTiles)
    of = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.bfloat16)
    stack = LAYERS * SPEC.experts
    gate_up, down = of((stack, 2 * SPEC.expert_inner, SPEC.hidden)), of((stack, SPEC.hidden, SPEC.expert_inner))
    arguments = (of((bucket, SPEC.hidden)), choice, gate_up, down, jnp.int32(rows))
    traced = _layers(SPEC, _plans(SPEC, rows)[0]).trace(*arguments)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("custom_call @mosaic_gpu") == 2
