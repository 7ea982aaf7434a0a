"""The fused step of the short convolution over streams of many windows, by both routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.kernels import conv_streams
from tests.kernels.conv_streams import SCRATCH, ConvStreams, Part, material, whole
from tfjax.kernels.conv_step import ConvPlaces, ConvState, conv_step
from tfjax.kernels.gpu.launch import Launch
from tfjax.kernels.routes import Route, Unsupported

LAYERS, LAYER, SPLIT, SIZE = 3, 1, 2, 64


def as_short_conv(step: Callable[..., Any]) -> Any:
    """A step as the operator that streams are run by: the state of other layers holds what must not be read."""

    @jax.jit
    def operator(gates: Any, x: Any, weight: Any, bias: Any, state: Any, place: Any, table: Any) -> Any:
        assert bias is None
        bcx = jnp.concatenate([*gates, x], -1).astype(jnp.float32)
        parts = jnp.stack([bcx * 0.25, bcx * 0.75])
        stacks = ConvState(*(jnp.full((LAYERS, *own.shape), jnp.nan, own.dtype).at[LAYER].set(own) for own in state))
        taps = jnp.full((LAYERS, *weight.T.shape), jnp.nan, weight.dtype).at[LAYER].set(weight.T)
        count = jnp.sum(place[0] != SCRATCH, dtype=jnp.int32)
        y, after = step(parts, taps, stacks, ConvPlaces(*place, table), jnp.int32(LAYER), count)
        others = [jnp.all(jnp.isnan(x[jnp.array([0, 2])])) for x in after]
        return jnp.where(others[0] & others[1], y, jnp.nan), tuple(x[LAYER] for x in after)

    return operator


def reference(*arguments: Any) -> Any:
    return conv_step(*arguments, route=Route.REFERENCE)


def interpreted(*arguments: Any) -> Any:
    from tfjax.kernels.gpu import conv_step as gpu

    return gpu.conv_step(*arguments, how=Launch(interpret=True))


STEPS = pytest.mark.parametrize("step", [reference, interpreted])


@pytest.fixture(autouse=True)
def _wide_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_streams, "SIZE", SIZE)


def check(streams: ConvStreams, stream: int, first: int, stop: int) -> None:
    found = np.stack([streams.found[stream, position] for position in range(first, stop)])
    wanted = whole(streams.m, stream)[first:stop]
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2**-7, atol=1e-2)


@STEPS
@pytest.mark.parametrize("taps", [3, 4])
def test_windows_across_pages_and_the_ring(step: Any, taps: int) -> None:
    streams = ConvStreams(material(ml_dtypes.bfloat16, taps), operator=as_short_conv(step))
    streams.forward(Part(0, 0, 0, 60), rows=64)
    for start, stop in ((60, 63), (63, 65), (65, 66), (66, 126), (126, 129), (129, 132)):
        streams.forward(Part(0, 0, start, stop), rows=64)
    check(streams, 0, 0, 132)


@STEPS
def test_streams_beside_one_another_and_rejected_rows(step: Any) -> None:
    streams = ConvStreams(material(ml_dtypes.bfloat16), operator=as_short_conv(step))
    streams.poison_lane(1)
    streams.forward(Part(0, 0, 0, 9), Part(1, 1, 0, 5), rows=16)
    streams.forward(Part(0, 0, 9, 16), Part(1, 1, 5, 9), change=3, rows=16)
    streams.forward(Part(0, 0, 9, 12), Part(1, 1, 5, 13), rows=16)
    streams.forward(Part(1, 1, 13, 14), Part(0, 0, 12, 13), rows=16)
    check(streams, 0, 0, 13)
    check(streams, 1, 0, 14)


@STEPS
def test_a_window_wider_than_the_ring(step: Any) -> None:
    """It writes where inputs before it stand, and some of its rows share a place."""
    streams = ConvStreams(material(ml_dtypes.bfloat16), operator=as_short_conv(step))
    streams.forward(Part(0, 2, 0, 10), rows=16)
    streams.forward(Part(0, 2, 10, 150))
    streams.forward(Part(0, 2, 150, 153), rows=16)
    check(streams, 0, 0, 153)


@pytest.mark.parametrize(("taps", "size", "told"), [(1, 64, "2 to 64"), (3, 100, "multiple of 32")])
def test_what_the_device_cannot_take(taps: int, size: int, told: str) -> None:
    state = ConvState(jnp.zeros((1, 2, 128, size), jnp.bfloat16), jnp.zeros((1, 2, taps - 1, size), jnp.bfloat16))
    places = ConvPlaces(jnp.zeros(2, jnp.int32), jnp.arange(2, dtype=jnp.int32), jnp.zeros((2, 1), jnp.int32))
    weight = jnp.zeros((1, taps, size), jnp.bfloat16)
    with pytest.raises(Unsupported, match=told):
        interpreted(jnp.zeros((1, 2, 3 * size)), weight, state, places, jnp.int32(0), jnp.int32(2))
