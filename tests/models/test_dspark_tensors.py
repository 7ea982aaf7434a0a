from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest
from flax import nnx

from tests.models.dspark_oracle import Shape
from tests.models.dspark_published import DEEPSPEC_QWEN3_4B, LIQUID_2_6B
from tests.models.dspark_streams import hf_config
from tfjax.models.blocks.markov import MarkovKind
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.dspark import DSpark
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.dspark_tensors import sources
from tfjax.models.family import Source


def test_liquids_published_tensors() -> None:
    """62 tensors; the model card counts 327.7 million parameters."""
    tensors = {part.name: part.shape for parts in sources(DSparkConfig.from_hf(LIQUID_2_6B)).values() for part in parts}
    assert len(tensors) == 62
    assert round(sum(map(math.prod, tensors.values())) / 1e6, 1) == 327.7
    assert tensors["fc.weight"] == (2048, 5 * 2048)
    assert tensors["markov_head.markov_w1.weight"] == tensors["markov_head.markov_w2.weight"] == (128000, 256)
    assert tensors["confidence_head.proj.weight"] == (1, 2048 + 256)
    assert tensors["layers.4.self_attn.k_proj.weight"] == (512, 2048)


def test_deepspecs_own_embedding_and_head() -> None:
    config = replace(DSparkConfig.from_hf(DEEPSPEC_QWEN3_4B), own_embedding=True, own_head=True)
    found = sources(config)
    assert found["embedding"] == (Source("embed_tokens.weight", (151936, 2560)),)
    assert found["head"] == (Source("lm_head.weight", (151936, 2560)),)
    assert found["layers.0.attention.q.weight"][0].shape == (32 * 128, 2560)


CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "gated": {"markov": MarkovKind.GATED},
    "rnn": {"markov": MarkovKind.RNN},
    "no confidence head": {"confidence": False},
    "confidence without Markov": {"confidence_with_markov": False},
    "no norm": {"qk_norm": QKNorm.NONE},
    "own ends": {"own_embedding": True, "own_head": True},
    "reduced": {"draft_vocab": 20, "markov_rows": 20},
    "another width": {"target_hidden": 40},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_every_own_parameter_has_a_source_of_its_shape(changes: dict[str, Any]) -> None:
    config = replace(DSparkConfig.from_hf(hf_config(Shape())), **changes)
    module = nnx.eval_shape(lambda: DSpark(config, jnp.float32))
    shapes = {".".join(map(str, path)): leaf.shape for path, leaf in nnx.to_flat_state(nnx.state(module))}
    found = sources(config)
    joined = {"ids", "markov.row", *({"embedding", "head"} - found.keys())}
    assert shapes.keys() - joined == found.keys()
    for name, parts in found.items():
        rows = sum(part.shape[0] for part in parts)
        assert (rows, *parts[0].shape[1:]) == shapes[name], name
