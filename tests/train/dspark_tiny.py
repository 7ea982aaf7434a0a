"""A tiny DSpark drafter with random weights in the form of training, and a row of replies for it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tests.models.dspark_oracle import Shape
from tests.models.dspark_streams import hf_config
from tfjax.models.dspark_config import DSparkConfig
from tfjax.train.dense_target import TargetShape, TargetWeights
from tfjax.train.dspark_blocks import lay_out
from tfjax.train.dspark_dense import Params, block_states, embed_previous, markov_features, raw_confidence
from tfjax.train.dspark_loss import Models, draft_logits
from tfjax.train.dspark_model import CONFIDENCE, HEAD_NORMS, MARKOV, PLAIN, shapes
from tfjax.train.small_data import PAD, PROMPT, REPLY, Packed
from tfjax.train.small_dense import LAYER_TENSORS, Places

REDUCED = (3, 5, 8, 9, 14, 20, 27, 33, 34, 40, 41, 50, 58, 63)
BATCH = Packed(
    token=np.array(
        [
            [3, 49, 7, 8, 0, 21, 33, 8, 14, 41, 5, 9, 63, 40, 2, 0],
            [9, 9, 40, 2, 2, 30, 31, 32, 11, 5, 3, 20, 27, 34, 50, 58],
        ],
        np.int32,
    ),
    segment=np.array([[1] * 5 + [2] * 10 + [0], [1] * 16], np.int32),
    position=np.array([[0, 1, 2, 3, 4, *range(10), 0], list(range(16))], np.int32),
    kind=np.array([[PROMPT] * 2 + [REPLY] * 3 + [PROMPT] * 2 + [REPLY] * 8 + [PAD], [PROMPT] * 4 + [REPLY] * 12]),
)
"""Two documents and padding in one row, one document in the other."""


def config_of(shape: Shape) -> DSparkConfig:
    config = dataclasses.replace(DSparkConfig.from_hf(hf_config(shape)), markov_rows=shape.w1_rows)
    return dataclasses.replace(config, draft_vocab=len(shape.ids), target_layers=shape.taps + 1)


def params_of(config: DSparkConfig, tensors: Mapping[str, NDArray[Any]]) -> Params:
    """Tensors by their published names in the form of training, in float32."""

    def read(name: str) -> jax.Array:
        return jnp.asarray(tensors[name], jnp.float32)

    names = {**LAYER_TENSORS, **HEAD_NORMS}

    def stacked(part: str) -> jax.Array:
        return jnp.stack([read(f"layers.{i}.{part}.weight") for i in range(config.layers)])

    wanted = shapes(config)
    return {
        **{name: read(full) for name, full in PLAIN.items()},
        "layers": {name: stacked(names[name]) for name in wanted["layers"]},
        "markov": {name: read(MARKOV[name]) for name in wanted["markov"]},
        "confidence": {name: read(CONFIDENCE[name]) for name in wanted["confidence"]},
    }


def random_params(config: DSparkConfig, seed: int = 4) -> Params:
    """Every parameter random, those that begin at zero too."""
    random = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: jnp.asarray(random.normal(0, 0.3, shape) + (len(shape) < 2), jnp.float32),
        shapes(config),
        is_leaf=lambda leaf: isinstance(leaf, tuple),
    )


def models_of(config: DSparkConfig, ids: tuple[int, ...], embedding: Any, head: Any, norm: Any = None) -> Models:
    """A target of nothing but embedding and head, in float32."""
    draft_of = np.full(config.vocab, -1, np.int32)
    draft_of[list(ids)] = np.arange(len(ids))
    every = np.arange(config.vocab, dtype=np.int32)
    wide = jnp.asarray(head, jnp.float32)
    scale = jnp.ones(config.target_hidden) if norm is None else jnp.asarray(norm)
    return Models(
        target=TargetWeights(jnp.asarray(embedding, jnp.float32), wide, scale, None),
        head_rows=wide[jnp.asarray(ids)],
        ids=jnp.asarray(ids, jnp.int32),
        draft_of=jnp.asarray(draft_of),
        previous_of=jnp.asarray(every if config.markov_rows == config.vocab else draft_of),
    )


def looked_up(
    weights: Any, config: Any, token: jax.Array, at: Places, taps: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """A target's forward whose states depend on the token alone: rows of two tables."""
    states, features = weights
    return states[token], features[token]


def table_target(config: DSparkConfig, ids: tuple[int, ...], seed: int = 7) -> tuple[TargetShape, Models]:
    """A target that is `looked_up`, with a head that makes some tokens likely."""
    random = np.random.default_rng(seed)

    def table(width: int, size: float = 1.0) -> jax.Array:
        return jnp.asarray(random.normal(0, size, (config.vocab, width)), jnp.float32)

    width = config.target_hidden
    models = models_of(config, ids, table(width), table(width, 0.5), 1 + 0.1 * np.arange(width))
    body = table(width), table(width * len(config.taps))
    shape = TargetShape(
        vocab=config.vocab,
        hidden=width,
        layers=len(config.taps) + 1,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        context=config.context,
        norm_eps=config.norm_eps,
        rope=config.rope,
        forward=looked_up,
        config=None,
        drafter="Qwen3DSparkModel",
    )
    return shape, models._replace(target=models.target._replace(body=body))


@functools.partial(jax.jit, static_argnums=5)
def drafted(
    params: Params, models: Models, batch: Packed, features: jax.Array, anchor: jax.Array, config: DSparkConfig
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """States, logits and confidences of blocks, all tokens before a draft being the true ones."""
    blocks = lay_out(batch, anchor, config.block, config.mask_token)
    h = block_states(params, models.target.embedding, features, batch.position, blocks, config)
    e = embed_previous(params["markov"], models.previous_of, blocks.previous)
    logits = draft_logits(params, models, h, markov_features(params["markov"], config.markov, e, h))
    return h, logits, jax.nn.sigmoid(raw_confidence(params["confidence"], h, e))
