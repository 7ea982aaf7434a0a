"""Modules with random weights, made on the device one parameter at a time: no copy of them is ever on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.engine.kernel_choice import choose_kernels
from tfjax.engine.weights import LoadedModel
from tfjax.models.family import Family

SCALE = 0.02


def random_model(family: Family[Any], config: Any, dtype: Any, kernels: str) -> LoadedModel:
    """A model as `--kernels` would have it loaded: in stacked form where the device has kernels for all of it."""
    run_by = choose_kernels(kernels, family, config, dtype)
    form = family.stacked if run_by.stacked else None
    if form is None:
        return LoadedModel(family, config, random_module(lambda: family.build(config, dtype)), dtype, run_by)
    module = random_module(lambda: form.build(config, dtype, run_by.route))
    return LoadedModel(family, config, module, dtype, run_by)


def random_module(build: Callable[[], nnx.Module], left: Collection[str] = ()) -> nnx.Module:
    """Norms are ones, biases zeros, everything else is random; `left` are parameters that stay without a value."""
    module: nnx.Module = nnx.eval_shape(build)
    flat = dict(nnx.to_flat_state(nnx.state(module)))
    for number, (path, leaf) in enumerate(flat.items()):
        if path[0] not in left:
            like = leaf.get_value()
            flat[path] = leaf.replace(_value(".".join(map(str, path)), jax.random.key(number), like))
    nnx.update(module, nnx.from_flat_state(flat))
    return module


def _value(name: str, key: jax.Array, like: Any) -> jax.Array:
    if "bias" in name:
        return jnp.zeros(like.shape, like.dtype)
    if "norm" in name or like.ndim < 2:
        return jnp.ones(like.shape, like.dtype)
    made: jax.Array = _random(key, like.shape, like.dtype)
    return made


@functools.partial(jax.jit, static_argnames=("shape", "dtype"))
def _random(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """A stack is made matrix by matrix, so that random numbers take little memory of their own."""
    made: jax.Array
    if len(shape) == 2:
        made = jax.random.normal(key, shape, dtype) * jnp.asarray(SCALE, dtype)
        return made
    made = jax.lax.map(lambda own: _random(own, shape[1:], dtype), jax.random.split(key, shape[0]))
    return made
