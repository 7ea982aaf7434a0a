"""How many kernels a layer of each kind is: on a device every further one costs more than most of them take."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import pytest

from tests.models.published_lfm2 import LFM2_1B, LFM2_24B, LFM2_CODE
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.kernels.rope_write import Pools
from tfjax.kernels.routes import Route
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.lfm2_layer import Stream, layer_step, shared_by_layers
from tfjax.models.lfm2_stacks import Kind, Number
from tfjax.models.rows import Rows
from tfjax.models.stacked_lfm2 import STACKED, StackedLfm2

BF16 = jnp.dtype(jnp.bfloat16)

FREE = {"custom_call", "constant", "reshape", "slice", "pad"}
"""Operations on arrays that are kernels of ours, or none at all: slices are of whole arrays, and nothing is padded."""

slow = pytest.mark.slow


def lowered(config: Lfm2Config, kind: Kind, rows: int) -> str:
    """A layer's program."""
    int32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
    tiles = Tiles(int32(()), *[int32((rows,))] * 3)
    cache = jax.eval_shape(lambda: STACKED.empty_cache(config, 9, PAGE_ROWS, 3, BF16))
    x = jax.ShapeDtypeStruct((rows, config.hidden), BF16)
    pools = Pools(*(jax.ShapeDtypeStruct((9 * len(pool), *pool.shape[2:]), BF16) for pool in cache.pools))
    weights = jax.eval_shape(lambda: StackedLfm2(config, BF16, Route.PALLAS_GPU).weights)
    given = Rows(int32((rows,)), int32((rows,)), int32((rows,)), tiles, int32((3, 4)))
    shared = jax.eval_shape(lambda rows: shared_by_layers(config, rows, tile_rows=STACKED.tile_rows(config)), given)
    step = functools.partial(layer_step, config=config, kind=kind, route=Route.PALLAS_GPU)
    program = jax.jit(step).trace(Stream(x, x, pools, cache.conv), weights, shared, Number(*[int32(())] * 3))
    text = program.lower(lowering_platforms=("cuda",)).as_text()
    return text[text.index("func.func private") :]


def whole(slicing: str) -> bool:
    """Whether a slice takes all that there is."""
    taken = re.search(r"\[([^]]*)\] : \(tensor<([0-9x]+)x", slicing)
    assert taken is not None, slicing
    return [f"0:{size}" for size in taken[2].split("x")] == taken[1].split(", ")


CONV, ATTEND, CONV_EXPERTS, ATTEND_EXPERTS = Kind(False, False), Kind(True, False), Kind(False, True), Kind(True, True)


@pytest.mark.parametrize(
    ("config", "kind", "kernels"),
    [
        pytest.param(LFM2_CODE, CONV_EXPERTS, 9, id="code, convolution, experts"),
        pytest.param(LFM2_CODE, ATTEND_EXPERTS, 11, id="code, attention, experts", marks=slow),
        pytest.param(LFM2_CODE, CONV, 7, id="code, convolution, dense", marks=slow),
        pytest.param(LFM2_1B, CONV, 7, id="1.2B, convolution", marks=slow),
        pytest.param(LFM2_1B, ATTEND, 9, id="1.2B, attention", marks=slow),
        pytest.param(LFM2_24B, CONV, 7, id="24B, convolution, dense", marks=slow),
        pytest.param(LFM2_24B, CONV_EXPERTS, 9, id="24B, convolution, experts", marks=slow),
        pytest.param(LFM2_24B, ATTEND_EXPERTS, 11, id="24B, attention, experts", marks=slow),
    ],
)
def test_a_window_takes_no_kernel_of_xla(config: Lfm2Config, kind: Kind, kernels: int) -> None:
    text = lowered(config, kind, 8)
    assert text.count("custom_call @mosaic_gpu") == kernels
    on_arrays = [line for line in text.splitlines() if re.search(r"tensor<\d", line)]
    assert {name for line in on_arrays for name in re.findall(r"= \"?stablehlo\.(\w+)", line)} <= FREE
    assert not re.search(r"stablehlo\.pad .*(low|high) = \[[0, ]*[1-9]", text)
    assert all(whole(line) for line in on_arrays if "stablehlo.slice" in line)
    assert text.count("output_operand_alias<") == 2, "the cache has to be written in place"
