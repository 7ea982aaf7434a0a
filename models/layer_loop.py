"""Equal layers one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tfjax.kernels.routes import Route


def over_layers[Carry, Told](
    step: Callable[[Carry, jax.Array], tuple[Carry, Told]], carry: Carry, layers: int, route: Route
) -> tuple[Carry, Sequence[Told]]:
    """`step(carry, number)` for every layer: the last carry, and what each step told.

    Kernels are written out by one trace. In a loop XLA would compute each layer's numbers in small kernels of its own,
    and launch all anew at every turn. Reference operators run in a loop, as XLA would compile them again per layer.
    """
    if route is Route.REFERENCE:
        carry, told = jax.lax.scan(step, carry, jnp.arange(layers, dtype=jnp.int32))
        return carry, [_of_layer(told, number) for number in range(layers)]
    once, found = jax.jit(step), []
    for number in range(layers):
        carry, one = once(carry, jnp.int32(number))
        found.append(one)
    return all_read(carry), found


def all_read[Carry](carry: Carry) -> Carry:
    """What the last layer gives. Without this it would be lowered once more, without what nobody reads."""
    read: Carry = jax.lax.optimization_barrier(carry)
    return read


def _of_layer(told: Any, number: int) -> Any:
    return jax.tree.map(lambda stacked: stacked[number], told)
