from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.kernels.routes import Route
from tfjax.models.layer_loop import over_layers

LAYERS = 5


@pytest.mark.parametrize("route", [Route.REFERENCE, Route.PALLAS_GPU])
def test_every_layer_follows_the_one_before(route: Route) -> None:
    def step(carry: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = 10 * carry + number
        return carry, carry

    last, told = jax.jit(lambda x: over_layers(step, x, LAYERS, route))(jnp.int32(7))
    assert int(last) == 701234
    assert [int(x) for x in told] == [70, 701, 7012, 70123, 701234]


@pytest.mark.parametrize("route", [Route.REFERENCE, Route.PALLAS_GPU])
def test_a_step_may_tell_nothing(route: Route) -> None:
    last, told = over_layers(lambda carry, number: (carry + number, None), jnp.int32(0), LAYERS, route)
    assert int(last) == 10
    assert list(told) == [None] * LAYERS


@pytest.mark.parametrize(("route", "loops"), [(Route.REFERENCE, 1), (Route.PALLAS_GPU, 0)])
def test_kernels_are_written_out_and_traced_once(route: Route, loops: int) -> None:
    traced = []

    def step(carry: jax.Array, number: jax.Array) -> tuple[jax.Array, None]:
        traced.append(number)
        return jnp.sin(carry) + number, None

    def program(x: Any) -> Any:
        return over_layers(step, x, LAYERS, route)[0]

    text = jax.jit(program).lower(np.float32(1)).as_text()
    assert len(traced) == 1
    assert text.count("stablehlo.while") == loops
    assert text.count("call @step(") == (0 if loops else LAYERS)
    assert text.count("stablehlo.sine") == 1
