from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.tiny import TINY, random_llama
from tests.row_invariance import bits
from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.models.config import ConfigError
from tfjax.models.registry import drafter_family_for, family_for
from tfjax.models.rows import Rows
from tfjax.models.small_drafter import FAMILY, SmallDrafter, SmallDrafterConfig, sources

HF: dict[str, Any] = {
    "architectures": ["TfjaxSmallDrafter"],
    "model_type": "tfjax_small_drafter",
    "vocab_size": TINY.vocab,
    "hidden_size": TINY.hidden,
    "intermediate_size": TINY.inner,
    "num_hidden_layers": TINY.layers,
    "num_attention_heads": TINY.heads,
    "num_key_value_heads": TINY.kv_heads,
    "head_dim": TINY.head_dim,
    "rms_norm_eps": TINY.norm_eps,
    "rope_theta": TINY.rope.theta,
    "max_position_embeddings": TINY.context,
    "tie_word_embeddings": False,
    "target_hidden_size": 40,
    "draft_vocab_size": 24,
}
CONFIG = SmallDrafterConfig.from_hf(HF)


def test_config() -> None:
    assert SmallDrafterConfig(replace(TINY, tied=False), 40, 24, projected_head=False) == CONFIG
    assert (CONFIG.vocab, CONFIG.context) == (TINY.vocab, TINY.context)
    assert SmallDrafterConfig.from_hf(HF | {"tie_word_embeddings": True}) == replace(CONFIG, projected_head=True)
    assert SmallDrafterConfig.from_hf(HF | {"vocabulary_sha256": "ab"}).vocabulary_sha256 == "ab"
    whole = {key: value for key, value in HF.items() if key != "draft_vocab_size"}
    assert SmallDrafterConfig.from_hf(whole).draft_vocab == TINY.vocab


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target_hidden_size": None}, "target_hidden_size"),
        ({"draft_vocab_size": 65}, "draft_vocab_size 65 is more than vocab_size 64"),
        ({"draft_vocab_size": 0}, "draft_vocab_size is 0"),
        ({"attention_sinks": 4}, "attention_sinks"),
    ],
)
def test_a_config_that_cannot_be_honoured(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SmallDrafterConfig.from_hf(HF | change)


def test_it_drafts_and_is_not_served() -> None:
    assert drafter_family_for("TfjaxSmallDrafter") is FAMILY
    assert drafter_family_for("LlamaForCausalLM").architecture == "LlamaForCausalLM"
    with pytest.raises(ConfigError, match="'TfjaxSmallDrafter' is not supported"):
        family_for("TfjaxSmallDrafter")
    with pytest.raises(ConfigError, match=r"'MambaForCausalLM' cannot draft.*LlamaForCausalLM.*TfjaxSmallDrafter"):
        drafter_family_for("MambaForCausalLM")


def joined(config: SmallDrafterConfig, embedding: jax.Array, ids: jax.Array) -> SmallDrafter:
    """A drafter with the layers of a tiny Llama and a random projection."""
    model = SmallDrafter(config, jnp.float32)
    body: Any = random_llama(config.body, jnp.float32)
    model.layers, model.norm = body.layers, body.norm
    random = np.random.default_rng(5)
    model.embed_proj.weight = nnx.Param(jnp.asarray(random.normal(0, 0.3, (TINY.hidden, 40)), jnp.float32))
    if config.projected_head:
        model.head_proj = nnx.Param(jnp.asarray(random.normal(0, 0.3, (40, TINY.hidden)), jnp.float32))
    else:
        model.head = nnx.Param(jnp.asarray(random.normal(0, 0.3, (24, TINY.hidden)), jnp.float32))
    model.join(embedding, ids)
    return model


def rows_of(tokens: list[int]) -> Rows:
    count = len(tokens)
    tiles = Tiles(jnp.int32(1), jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32), jnp.full(1, count - 1, jnp.int32))
    position = jnp.arange(count, dtype=jnp.int32)
    return Rows(jnp.asarray(tokens, jnp.int32), jnp.zeros(count, jnp.int32), position, tiles, jnp.array([[1, 2]]))


def test_it_is_a_llama_over_the_projected_embedding() -> None:
    embedding = jnp.asarray(np.random.default_rng(6).normal(0, 1, (TINY.vocab, 40)), jnp.float32)
    model = joined(CONFIG, embedding, jnp.arange(24))
    llama: Any = random_llama(CONFIG.body, jnp.float32)
    llama.embedding = nnx.Param(rows_matmul(embedding, model.embed_proj.weight[...]))
    rows = rows_of([5, 9, 63, 0, 5])
    cache = FAMILY.empty_cache(CONFIG, 3, PAGE_ROWS, 2, jnp.float32)
    hidden, written, _ = model(cache, rows, tile_rows=8)
    expected, expected_cache, _ = llama(cache, rows, tile_rows=8)
    assert (bits(np.asarray(hidden)) == bits(np.asarray(expected))).all()
    for one, other in zip(jax.tree.leaves(written), jax.tree.leaves(expected_cache), strict=True):
        assert (bits(np.asarray(one)) == bits(np.asarray(other))).all()


def test_a_projected_head_is_made_of_the_draft_tokens_rows() -> None:
    random = np.random.default_rng(6)
    embedding = jnp.asarray(random.normal(0, 1, (TINY.vocab, 40)), jnp.float32)
    ids = jnp.asarray(random.permutation(TINY.vocab)[:24])
    config = replace(CONFIG, projected_head=True)
    projection = np.random.default_rng(5)
    projection.normal(0, 0.3, (TINY.hidden, 40))
    expected = np.asarray(embedding)[np.asarray(ids)] @ projection.normal(0, 0.3, (40, TINY.hidden))
    model = joined(config, embedding, ids)
    np.testing.assert_allclose(model.head_weight, expected, rtol=1e-4, atol=1e-5)
    names = {".".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(model))}
    assert "head_proj" not in names


@pytest.mark.parametrize("projected", [False, True])
def test_every_own_parameter_has_a_source(projected: bool) -> None:
    config = replace(CONFIG, projected_head=projected)
    shapes = {
        ".".join(map(str, path)): leaf.shape
        for path, leaf in nnx.to_flat_state(nnx.state(nnx.eval_shape(lambda: SmallDrafter(config, jnp.float32))))
    }
    found = sources(config)
    made = {"embedding", "head"} if projected else {"embedding"}
    assert shapes.keys() - made == found.keys()
    for name, parts in found.items():
        assert sum(part.shape[0] for part in parts) == shapes[name][0], name
    assert ("head_proj.weight" in {part.name for parts in found.values() for part in parts}) == projected
