"""The parameters of a DSpark drafter, and the names under which they are published."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.models.blocks.markov import MarkovKind
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.dspark_config import DSparkConfig
from tfjax.train.dense_target import DenseTarget
from tfjax.train.dspark_dense import Params
from tfjax.train.dspark_loss import Models
from tfjax.train.small_dense import LAYER_TENSORS

HEAD_NORMS: Mapping[str, str] = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}

PLAIN: Mapping[str, str] = {"fc": "fc.weight", "hidden_norm": "hidden_norm.weight", "norm": "norm.weight"}
MARKOV: Mapping[str, str] = {
    "w1": "markov_head.markov_w1.weight",
    "w2": "markov_head.markov_w2.weight",
    "gate": "markov_head.gate_proj.weight",
    "gate_bias": "markov_head.gate_proj.bias",
    "joint": "markov_head.joint_proj.weight",
    "joint_bias": "markov_head.joint_proj.bias",
}
CONFIDENCE: Mapping[str, str] = {"weight": "confidence_head.proj.weight", "bias": "confidence_head.proj.bias"}


def shapes(config: DSparkConfig) -> Params:
    """The shape of every parameter, in the form of `Params`."""
    hidden, width, kv_width = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "attention_norm": (hidden,),
        "q": (width, hidden),
        "k": (kv_width, hidden),
        "v": (kv_width, hidden),
        "o": (hidden, width),
        "mlp_norm": (hidden,),
        "gate": (config.inner, hidden),
        "up": (config.inner, hidden),
        "down": (hidden, config.inner),
    }
    if config.qk_norm is not QKNorm.NONE:
        layer |= dict.fromkeys(HEAD_NORMS, (config.head_dim,))
    rank = config.markov_rank
    markov: dict[str, tuple[int, ...]] = {"w1": (config.markov_rows, rank), "w2": (config.draft_vocab, rank)}
    if config.markov is MarkovKind.GATED:
        markov |= {"gate": (rank, hidden + rank), "gate_bias": (rank,)}
    if config.markov is MarkovKind.RNN:
        markov |= {"joint": (3 * rank, 2 * rank + hidden), "joint_bias": (3 * rank,)}
    return {
        "fc": (hidden, len(config.taps) * config.target_hidden),
        "hidden_norm": (hidden,),
        "norm": (hidden,),
        "layers": {name: (config.layers, *shape) for name, shape in layer.items()},
        "markov": markov,
        "confidence": {"weight": (1, hidden + rank), "bias": (1,)},
    }


def random_params(config: DSparkConfig, target: DenseTarget, seed: int) -> Params:
    """Initial parameters in float32.

    Residual branches are small, the final norm is the target's, so that logits have its size, and the Markov and
    confidence heads say nothing yet.
    """
    params: Params = _random(config, target.weights.norm, seed)
    return params


@functools.partial(jax.jit, static_argnums=0)
def _random(config: DSparkConfig, norm: jax.Array, seed: int) -> Params:
    branch = 1 / math.sqrt(2 * config.layers)
    key = jax.random.key(seed)

    def first(number: int, name: str, shape: tuple[int, ...]) -> jax.Array:
        if "norm" in name:
            return jnp.ones(shape)
        if name in ("w2", "weight") or "bias" in name:
            return jnp.zeros(shape)
        scale = branch if name in ("o", "down") else 1.0
        return scale / math.sqrt(shape[-1]) * jax.random.normal(jax.random.fold_in(key, number), shape)

    leaves, tree = jax.tree.flatten_with_path(shapes(config), is_leaf=lambda leaf: isinstance(leaf, tuple))
    found = [first(number, str(path[-1].key), shape) for number, (path, shape) in enumerate(leaves)]
    params: Params = jax.tree.unflatten(tree, found)
    return params | {"norm": norm.astype(jnp.float32)}


def models_of(config: DSparkConfig, target: DenseTarget, draft_ids: NDArray[np.int32]) -> Models:
    """What a step reads of the target. Shape: draft_ids int32 [C], in rising order."""
    draft_of = np.full(config.vocab, -1, np.int32)
    draft_of[draft_ids] = np.arange(len(draft_ids))
    ids = jnp.asarray(draft_ids)
    every = jnp.arange(config.vocab, dtype=jnp.int32)
    return Models(
        target=target.weights,
        head_rows=target.weights.head[ids],
        ids=ids,
        draft_of=jnp.asarray(draft_of),
        previous_of=every if config.markov_rows == config.vocab else jnp.asarray(draft_of),
    )


def published(params: Params) -> Iterator[tuple[str, NDArray[Any]]]:
    """Name and value of each tensor of the checkpoint, d2t aside."""
    for name, full in PLAIN.items():
        yield full, np.asarray(params[name])
    for name, stacked in params["layers"].items():
        part = HEAD_NORMS.get(name) or LAYER_TENSORS[name]
        for index, value in enumerate(np.asarray(stacked)):
            yield f"layers.{index}.{part}.weight", value
    for group, names in (("markov", MARKOV), ("confidence", CONFIDENCE)):
        for name, value in params[group].items():
            yield names[name], np.asarray(value)


def sharpened(params: Params, config: DSparkConfig, by: float) -> Params:
    """Parameters whose drafts have `by` times the logits and the same confidences.

    Greedy drafts stay the same but for rounding; drawn ones keep to likelier tokens where it is above 1.
    """
    markov, hidden, rank = dict(params["markov"]), config.hidden, config.markov_rank
    markov["w2"] = by * markov["w2"]
    # The rows after the final norm grow with it, and what else reads them has to shrink. Gates read rows before the
    # token's vector, the recurrent head the other way round.
    if config.markov is MarkovKind.GATED:
        markov["gate"] = markov["gate"].at[:, :hidden].divide(by)
    if config.markov is MarkovKind.RNN:
        markov["joint"] = markov["joint"].at[:, 2 * rank :].divide(by)
    confidence = params["confidence"] | {"weight": params["confidence"]["weight"].at[:, :hidden].divide(by)}
    return params | {"norm": by * params["norm"], "markov": markov, "confidence": confidence}


def from_published(read: Callable[[str, tuple[int, ...]], NDArray[Any]], config: DSparkConfig) -> Params:
    """The other way round. `read` gives a tensor by its name and the shape that it has to have."""
    wanted = shapes(config)

    def stacked(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        part = HEAD_NORMS.get(name) or LAYER_TENSORS[name]
        return np.stack([read(f"layers.{index}.{part}.weight", shape[1:]) for index in range(shape[0])])

    return {
        **{name: read(full, wanted[name]) for name, full in PLAIN.items()},
        "layers": {name: stacked(name, shape) for name, shape in wanted["layers"].items()},
        "markov": {name: read(MARKOV[name], shape) for name, shape in wanted["markov"].items()},
        "confidence": {name: read(CONFIDENCE[name], shape) for name, shape in wanted["confidence"].items()},
    }


def parameters(config: DSparkConfig) -> int:
    """How many there are, the target's embedding and head aside."""
    leaves = jax.tree.leaves(shapes(config), is_leaf=lambda leaf: isinstance(leaf, tuple))
    return sum(math.prod(shape) for shape in leaves)
