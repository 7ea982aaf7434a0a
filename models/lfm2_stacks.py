"""All parameters of an LFM2 in stacks: one array for what equal layers have, in the order of those layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tfjax.models import lfm2
from tfjax.models.family import Source
from tfjax.models.lfm2 import Lfm2
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.module_state import ModuleState

ROUTER_COLUMNS = 64
"""What the device's product takes a multiple of; routers of fewer experts are padded with zeros."""


class Kind(NamedTuple):
    """What a layer is made of: attention or a short convolution, then experts or a dense block."""

    attends: bool
    experts: bool


class Number(NamedTuple):
    """Where a layer's parameters lie in the stacks: of all layers, of its operator, of its block. int, or int32 []."""

    layer: Any
    operator: Any
    block: Any


class Lfm2Stacks(NamedTuple):
    """All parameters; None where no layer has such.

    Shapes: embedding, head [V, D]; operator_norm [L + 1, D] (the last is the final norm's), ffn_norm [L, D],
    out [L, D, D] of all layers; qkv [A, out, D] and q_norm, k_norm [A, H] of those that attend; bcx [C, 3 * D, D] and
    taps [C, taps, D] of convolutions; gate_up [F, 2 * inner, D] and down [F, D, inner] of dense blocks; router
    [M, columns, D], router_bias float32 [M, columns], expert_gate_up [M * E, 2 * I, D] and expert_down [M * E, D, I].
    """

    embedding: jax.Array
    head: jax.Array
    operator_norm: jax.Array
    ffn_norm: jax.Array
    out: jax.Array
    qkv: jax.Array | None
    q_norm: jax.Array | None
    k_norm: jax.Array | None
    bcx: jax.Array | None
    taps: jax.Array | None
    gate_up: jax.Array | None
    down: jax.Array | None
    router: jax.Array | None
    router_bias: jax.Array | None
    expert_gate_up: jax.Array | None
    expert_down: jax.Array | None


STACKS = {
    "operator_norm": "operator_norm.weight",
    "ffn_norm": "ffn_norm.weight",
    "out": "operator.out.weight",
    "qkv": "operator.qkv.weight",
    "q_norm": "operator.q_norm.weight",
    "k_norm": "operator.k_norm.weight",
    "bcx": "operator.bcx.weight",
    "taps": "operator.taps",
    "gate_up": "feed_forward.gate_up.weight",
    "down": "feed_forward.down.weight",
    "router": "feed_forward.router.weight",
    "router_bias": "feed_forward.router.bias",
    "expert_gate_up": "feed_forward.gate_up",
    "expert_down": "feed_forward.down",
}
"""Each stack and the parameter of a layer that it holds; the final norm's follows in the first."""


def kinds(config: Lfm2Config) -> tuple[Kind, ...]:
    """Of every layer."""
    sparse = config.layers if config.experts is None else config.dense_layers
    return tuple(Kind(attends, index >= sparse) for index, attends in enumerate(config.attends))


def numbers(kinds: Sequence[Kind]) -> tuple[Number, ...]:
    """Of every layer of these kinds."""
    return tuple(
        Number(
            index,
            sum(other.attends == kind.attends for other in kinds[:index]),
            sum(other.experts == kind.experts for other in kinds[:index]),
        )
        for index, kind in enumerate(kinds)
    )


def router_columns(experts: int) -> int:
    """Columns of a padded router."""
    return -(-experts // ROUTER_COLUMNS) * ROUTER_COLUMNS


def shapes(config: Lfm2Config) -> dict[str, tuple[int, ...]]:
    """Of the stacks that a model of this config has."""
    c = config
    attending, sparse = sum(c.attends), sum(kind.experts for kind in kinds(c))
    convolving, dense = c.layers - attending, c.layers - sparse
    size, width = c.hidden, (c.heads + 2 * c.kv_heads) * c.head_dim
    found: dict[str, tuple[int, ...]] = {
        "operator_norm": (c.layers + 1, size),
        "ffn_norm": (c.layers, size),
        "out": (c.layers, size, size),
    }
    if attending:
        heads = (attending, c.head_dim)
        found |= {"qkv": (attending, width, size), "q_norm": heads, "k_norm": heads}
    if convolving:
        found |= {"bcx": (convolving, 3 * size, size), "taps": (convolving, c.taps, size)}
    if dense:
        found |= {"gate_up": (dense, 2 * c.inner, size), "down": (dense, size, c.inner)}
    if c.experts is not None and sparse:
        columns, each = router_columns(c.experts.count), sparse * c.experts.count
        found |= {
            "router": (sparse, columns, size),
            "expert_gate_up": (each, 2 * c.experts.inner, size),
            "expert_down": (each, size, c.experts.inner),
        }
        if c.experts.biased:
            found["router_bias"] = (sparse, columns)
    return found


def sources(config: Lfm2Config) -> dict[str, tuple[Source, ...]]:
    """As `tfjax.models.lfm2.sources`; a stack's tensors are those of its layers, one layer after another."""
    own = lfm2.sources(config)
    found: dict[str, tuple[Source, ...]] = {name: own[name] for name in ("embedding", "head") if name in own}
    for stack in shapes(config):
        paths = (f"layers.{layer}.{STACKS[stack]}" for layer in range(config.layers))
        parts = tuple(source for path in paths for source in own.get(path, ()))
        lay = _LAID.get(stack)
        found[stack] = parts if lay is None else tuple(part._replace(laid=lay) for part in parts)
    found["operator_norm"] += own["norm.weight"]
    return found


def _taps_first(taps: NDArray[Any]) -> NDArray[Any]:
    """Shapes: [D, 1, taps] -> [taps, D]."""
    return np.ascontiguousarray(taps[:, 0].T)


def _padded(router: NDArray[Any]) -> NDArray[Any]:
    """Rows of zeros behind those of the experts."""
    return np.pad(router, ((0, router_columns(len(router)) - len(router)), *((0, 0),) * (router.ndim - 1)))


_LAID = {"taps": _taps_first, "router": _padded, "router_bias": _padded}


def unstacked(model: Any) -> Lfm2:
    """The same parameters in modules. Frees each stack when its layers are copied out of it."""
    config: Lfm2Config = model.config
    state = ModuleState(nnx.eval_shape(lambda: Lfm2(config, model.embedding[...].dtype)))
    state.put("embedding", model.embedding[...])
    if model.head is not None:
        state.put("head", model.head[...])
    state.put("norm.weight", model.operator_norm[...][config.layers])
    for stack in shapes(config):
        whole = getattr(model, stack)[...]
        paths = [f"layers.{layer}.{STACKS[stack]}" for layer in range(config.layers)]
        for number, path in enumerate(path for path in paths if path in state):
            state.put(path, _of_layer(stack, whole, number, state.shape(path)))
        whole.delete()
    return state.filled()


def _of_layer(stack: str, whole: jax.Array, number: int, shape: tuple[int, ...]) -> jax.Array:
    """A layer's part of a stack, as its module has it."""
    if stack == "taps":
        return whole[number].T
    if stack in ("expert_gate_up", "expert_down"):
        # Indexing by all that there is gives the stack itself, which is freed.
        return jax.lax.dynamic_slice_in_dim(whole, number * shape[0], shape[0])
    return whole[number, : shape[0]]
