"""The trained drafter: the served module computes what was trained, and the file holds what it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.train import served
from tfjax.models import small_drafter
from tfjax.train.small_config import SmallConfig
from tfjax.train.small_dense import places
from tfjax.train.small_model import Frozen, Params, frozen_parts, head_rows, random_params, save, student_logits

OWN = SmallConfig(
    vocab=50,
    target_hidden=24,
    draft_vocab=20,
    projected_head=False,
    hidden=16,
    inner=24,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=8,
    norm_eps=1e-5,
    rope_theta=10000.0,
    context=64,
    vocabulary_sha256="abc",
)
EMBEDDING = np.random.default_rng(1).normal(0, 0.3, (50, 24)).astype(np.float32)
DRAFT_IDS = np.sort(np.random.default_rng(2).permutation(50)[:20]).astype(np.int32)
TOKENS = [3, 49, 7, 7, 0, 21, 33, 8, 14]


def changed(**values: Any) -> SmallConfig:
    return SmallConfig(**{**{name: getattr(OWN, name) for name in OWN.__slots__}, **values})


def trained(config: SmallConfig) -> tuple[Params, Frozen]:
    """Parameters large enough that every part changes the logits well above rounding."""
    params = random_params(config, EMBEDDING, seed=4)
    params["head"] = params["head"] * 5
    params["layers"] = {name: value * 1.3 for name, value in params["layers"].items()}
    return params, frozen_parts(EMBEDDING, DRAFT_IDS, projected_head=config.projected_head)


def dense(params: Params, frozen: Frozen, config: SmallConfig) -> NDArray[np.float32]:
    token = jnp.asarray([TOKENS])
    at = places(jnp.ones_like(token), jnp.arange(len(TOKENS))[None])
    return np.asarray(jax.jit(student_logits, static_argnums=3)(params, frozen, token, config, at))[0]


@pytest.mark.parametrize("config", [OWN, changed(projected_head=True)])
def test_the_served_module_computes_what_was_trained(tmp_path: Path, config: SmallConfig) -> None:
    params, frozen = trained(config)
    save(tmp_path, params, config, DRAFT_IDS)
    module = served.load(tmp_path, small_drafter.FAMILY)
    module.join(jnp.asarray(EMBEDDING, jnp.bfloat16), jnp.asarray(DRAFT_IDS))
    expected = served.logits(module, small_drafter.FAMILY, TOKENS)
    found = dense(params, frozen, config)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected, atol=0.05 * np.abs(expected).max())


def test_a_projected_head_is_the_targets_rows_through_a_projection(tmp_path: Path) -> None:
    config = changed(projected_head=True)
    params, frozen = trained(config)
    own = trained(OWN)[1]
    rows = np.asarray(head_rows(params["head"].astype(jnp.bfloat16), frozen), np.float32)
    expected = EMBEDDING[DRAFT_IDS] @ np.asarray(params["head"])
    np.testing.assert_allclose(rows, expected, atol=0.02 * np.abs(expected).max())
    as_own = {**params, "head": jnp.asarray(rows)}
    np.testing.assert_allclose(dense(params, frozen, config), dense(as_own, own, OWN), atol=0.05)


@pytest.mark.parametrize("config", [OWN, changed(projected_head=True), changed(draft_vocab=50)])
def test_the_file_holds_the_declared_tensors_and_nothing_else(tmp_path: Path, config: SmallConfig) -> None:
    ids = np.arange(50, dtype=np.int32) if config.draft_vocab == 50 else DRAFT_IDS
    size = save(tmp_path, random_params(config, EMBEDDING, seed=0), config, ids)
    tensors = load_file(tmp_path / "model.safetensors")
    d2t = tensors.pop("d2t", None)
    assert {name: value.shape for name, value in tensors.items()} == config.tensors()
    assert {str(value.dtype) for value in tensors.values()} == {"bfloat16"}
    assert size == (tmp_path / "model.safetensors").stat().st_size
    assert 0 < size - config.file_bytes < 4096
    assert json.loads((tmp_path / "config.json").read_text()) == config.to_hf()
    if config.draft_vocab == 50:
        assert d2t is None
    else:
        assert d2t is not None
        assert d2t.dtype == np.int64
        assert (np.arange(20) + d2t).tolist() == DRAFT_IDS.tolist()


def test_draft_ids_and_tokens_map_to_each_other() -> None:
    frozen = frozen_parts(EMBEDDING, DRAFT_IDS, projected_head=False)
    back = np.asarray(frozen.draft_of)
    assert back[DRAFT_IDS].tolist() == list(range(20))
    assert sorted(set(range(50)) - set(DRAFT_IDS.tolist())) == np.flatnonzero(back == -1).tolist()


def test_the_same_seed_gives_the_same_parameters_and_another_one_others() -> None:
    first, same, other = (random_params(OWN, EMBEDDING, seed)["layers"]["q"] for seed in (1, 1, 2))
    assert (first == same).all()
    assert not (first == other).any()


def test_first_activations_have_unit_size_and_first_logits_are_small() -> None:
    config = changed(hidden=256, heads=4, head_dim=64, target_hidden=24)
    params = random_params(config, EMBEDDING, seed=0)
    x = EMBEDDING @ np.asarray(params["embed_proj"]).T
    assert np.sqrt(np.mean(x * x)) == pytest.approx(1, abs=0.1)
    assert np.std(dense(params, trained(OWN)[1], config)) < 0.5
