"""Small random LFM2s, dense and with experts, as weights and as checkpoint directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from tests.checkpoints.hf_files import write_directory
from tfjax.train.lfm2_dense import Lfm2Weights
from tfjax.train.lfm2_names import flatten
from tfjax.train.target_config import TargetConfig

CONFIG = TargetConfig(
    vocab=300,
    hidden=32,
    inner=48,
    expert_inner=24,
    layers=3,
    attention=(1,),
    dense_layers=1,
    heads=4,
    kv_heads=2,
    experts=5,
    picked=2,
    taps=3,
    context=256,
    rope_theta=10_000.0,
)


def weights(config: TargetConfig = CONFIG, seed: int = 0) -> Lfm2Weights:
    """Every tensor changes the logits well above rounding; router biases change who is picked."""
    random = np.random.default_rng(seed)

    def tensor(name: str, shape: tuple[int, ...]) -> Any:
        centre = 1 if "norm" in name else 0
        return jnp.asarray(random.normal(centre, 0.3, shape), jnp.float32)

    layers = [
        {name: tensor(name, shape) for name, shape in config.layer_tensors(layer).items()}
        for layer in range(config.layers)
    ]
    return Lfm2Weights(tensor("", (config.vocab, config.hidden)), layers, tensor("norm", (config.hidden,)))


def write_model(directory: Path, config: TargetConfig = CONFIG, **changed: Any) -> Path:
    """A checkpoint with these weights in float32; keys changed to None are left out of its config."""
    found = {key: value for key, value in {**config.to_hf(), **changed}.items() if value is not None}
    write_directory(directory, config=found, tensors=dict(flatten(weights(config))))
    return directory
