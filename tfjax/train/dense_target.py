"""A target as the training of a DSpark drafter reads it: one dense forward that gives its features and last states."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from tfjax.checkpoints import Checkpoint
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.config import ConfigError
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.llama import LlamaConfig
from tfjax.models.registry import family_for
from tfjax.train import lfm2_dense
from tfjax.train.lfm2_dense import Lfm2Shape, Routing
from tfjax.train.lfm2_names import file_name, read_weights
from tfjax.train.small_dense import LAYER_TENSORS, Places, Shape, tapped_layers
from tfjax.train.small_target import shape_of


class Forward(Protocol):
    """The target's layers over whole sequences."""

    def __call__(
        self, weights: Any, config: Any, token: jax.Array, at: Places, taps: tuple[int, ...]
    ) -> tuple[jax.Array, jax.Array]:
        """The residual stream before the final norm, and after each tapped layer.

        Shapes: token int32 [B, T] -> [B, T, D], [B, T, taps * D].
        """


@dataclass(frozen=True, slots=True)
class TargetShape:
    """What is known of a target beside its weights. Hashable: jit takes it as static.

    Attributes:
        rope, heads, kv_heads, head_dim: of its attention; a drafter takes them over.
        forward: called with `TargetWeights.body` and `config`.
        config: what `forward` wants to know.
        drafter: architecture that a drafter's config.json names.
    """

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    norm_eps: float
    rope: RopeConfig
    forward: Forward
    config: Hashable
    drafter: str


class TargetWeights(NamedTuple):
    """Never written. Shapes: embedding, head [V, D], norm [D] (the final one); body is what `forward` takes."""

    embedding: jax.Array
    head: jax.Array
    norm: jax.Array
    body: Any


class DenseTarget(NamedTuple):
    """A target's shape and weights."""

    shape: TargetShape
    weights: TargetWeights


def target_shape(checkpoint: Checkpoint) -> TargetShape:
    """What a drafter has to know of the target; reads no weights.

    Raises:
        ConfigError: a target that has no dense forward.
    """
    config = _config(checkpoint)
    if isinstance(config, LlamaConfig):
        return _llama_shape(config)
    if isinstance(config, Lfm2Config):
        return lfm2_shape(config)
    raise ConfigError(f"{checkpoint.architecture} has no dense forward, so nothing can be trained to draft for it")


def read_target(checkpoint: Checkpoint, dtype: jnp.dtype | type = jnp.bfloat16) -> DenseTarget:
    """Read a target and put it on the device.

    Raises:
        ConfigError: a target that has no dense forward.
    """
    shape, config = target_shape(checkpoint), _config(checkpoint)
    if isinstance(config, Lfm2Config):
        return DenseTarget(shape, _lfm2_weights(checkpoint, config, dtype))
    return DenseTarget(shape, _llama_weights(checkpoint, config, dtype))


def _config(checkpoint: Checkpoint) -> Any:
    return family_for(checkpoint.architecture).config_from_hf(checkpoint.config)


def _llama_shape(config: LlamaConfig) -> TargetShape:
    if config.attention_bias or config.mlp_bias:
        raise ConfigError(
            "the target has biases, which its dense forward lacks; nothing can be trained to draft for it"
        )
    return TargetShape(
        vocab=config.vocab,
        hidden=config.hidden,
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        context=config.context,
        norm_eps=config.norm_eps,
        rope=config.rope,
        forward=_llama_forward,
        config=shape_of(config),
        drafter="Qwen3DSparkModel",
    )


def _llama_forward(
    weights: Any, config: Shape, token: jax.Array, at: Places, taps: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    embedding, layers = weights
    return tapped_layers(embedding[token], layers, config, at, taps)


def _llama_weights(checkpoint: Checkpoint, config: LlamaConfig, dtype: jnp.dtype | type) -> TargetWeights:
    read = checkpoint.tensors.read

    def stacked(part: str) -> jax.Array:
        return jnp.asarray(np.stack([read(f"model.layers.{i}.{part}.weight") for i in range(config.layers)]), dtype)

    embedding = jnp.asarray(read("model.embed_tokens.weight"), dtype)
    return TargetWeights(
        embedding=embedding,
        head=embedding if config.tied else jnp.asarray(read("lm_head.weight"), dtype),
        norm=jnp.asarray(read("model.norm.weight"), dtype),
        body=(embedding, {name: stacked(part) for name, part in LAYER_TENSORS.items()}),
    )


def lfm2_shape(config: Lfm2Config) -> TargetShape:
    """What a drafter has to know of an LFM2, dense or with experts.

    Raises:
        ConfigError: one whose convolutions have biases, which the dense forward lacks.
    """
    if config.conv_bias:
        raise ConfigError(
            "the target has conv_bias, which its dense forward lacks; nothing can be trained to draft for it"
        )
    experts = config.experts
    routing = None if experts is None else Routing(experts.picked, experts.normalised, experts.scale)
    return TargetShape(
        vocab=config.vocab,
        hidden=config.hidden,
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        context=config.context,
        norm_eps=config.norm_eps,
        rope=config.rope,
        forward=lfm2_dense.forward,
        config=Lfm2Shape(config.heads, config.kv_heads, config.head_dim, config.norm_eps, config.rope, routing),
        drafter="Lfm2DSparkDraftModel",
    )


def _lfm2_weights(checkpoint: Checkpoint, config: Lfm2Config, dtype: jnp.dtype | type) -> TargetWeights:
    names = set(checkpoint.tensors.infos)
    if config.experts is None or not config.experts.biased:
        names -= {file_name(layer, "expert_bias") for layer in range(config.layers)}
    body = read_weights(names, checkpoint.tensors.read, dtype)
    head = body.embedding if config.tied else jnp.asarray(checkpoint.tensors.read("lm_head.weight"), dtype)
    return TargetWeights(embedding=body.embedding, head=head, norm=body.norm, body=body)
