"""What training takes from the target: its embedding, and its whole forward where it is the teacher."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints import Checkpoint
from tfjax.models.config import ConfigError
from tfjax.models.llama import LlamaConfig
from tfjax.models.registry import family_for
from tfjax.train.small_dense import LAYER_TENSORS, Places, Shape, Weights, product, rms_norm, run_layers


class Teacher(NamedTuple):
    """The target's weights in bfloat16.

    Attributes:
        layers: each tensor stacked over the layers.
        norm: [D].
        head: head rows of the draft vocabulary. Shape: [Vd, D].
    """

    layers: Weights
    norm: jax.Array
    head: jax.Array


def target_config(checkpoint: Checkpoint) -> LlamaConfig:
    """The target's shapes.

    Raises:
        ConfigError: the target is no Llama, or one with biases, which the dense forward has not.
    """
    config = family_for(checkpoint.architecture).config_from_hf(checkpoint.config)
    if not isinstance(config, LlamaConfig):
        raise ConfigError(f"{checkpoint.architecture} cannot be imitated; give a Llama as --model")
    return config


def read_embedding(checkpoint: Checkpoint) -> NDArray[Any]:
    """The target's input embedding. Shape: [V, D]."""
    return checkpoint.tensors.read("model.embed_tokens.weight")


def read_teacher(checkpoint: Checkpoint, config: LlamaConfig, draft_ids: NDArray[np.int32]) -> Teacher:
    """Read the target's layers and the head rows of `draft_ids`.

    Raises:
        ConfigError: a Llama with biases.
    """
    if config.attention_bias or config.mlp_bias:
        raise ConfigError("the target has biases, which the teacher's dense forward lacks; take --teacher none")

    def stacked(part: str) -> jax.Array:
        names = [f"model.layers.{i}.{part}.weight" for i in range(config.layers)]
        return jnp.asarray(np.stack([checkpoint.tensors.read(name) for name in names]), jnp.bfloat16)

    head = checkpoint.tensors.read("model.embed_tokens.weight" if config.tied else "lm_head.weight")
    return Teacher(
        layers={name: stacked(part) for name, part in LAYER_TENSORS.items()},
        norm=jnp.asarray(checkpoint.tensors.read("model.norm.weight"), jnp.bfloat16),
        head=jnp.asarray(head[draft_ids], jnp.bfloat16),
    )


def shape_of(config: LlamaConfig) -> Shape:
    return Shape(config.heads, config.kv_heads, config.head_dim, config.norm_eps, config.rope)


def teacher_logits(teacher: Teacher, embedding: jax.Array, token: jax.Array, shape: Shape, at: Places) -> jax.Array:
    """The target's logits over the draft vocabulary. Shapes: token int32 [B, T] -> float32 [B, T, Vd]."""
    x = run_layers(embedding[token], teacher.layers, shape, at)
    return product(rms_norm(x, teacher.norm, shape.norm_eps), teacher.head).astype(jnp.float32)
