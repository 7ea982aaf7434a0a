"""The target as it is trained: first weights, logits, and the files."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from tests.train.tiny_lfm2 import CONFIG
from tfjax.train.target_model import logits, one_stream, random_params, save, with_biases, zero_biases

TOKENS = jnp.asarray(np.random.default_rng(1).integers(0, CONFIG.vocab, (2, 12)))


def test_first_logits_are_small_and_the_seed_decides_them() -> None:
    run = jax.jit(logits, static_argnums=3)
    first = [random_params(CONFIG, seed) for seed in (1, 2, 1)]
    found = [np.asarray(run(params, zero_biases(CONFIG), TOKENS, CONFIG.shape).logits) for params in first]
    np.testing.assert_array_equal(found[0], found[2])
    assert (found[0] != found[1]).any()
    assert 0.01 < found[0].std() < 1


def test_no_two_tensors_begin_alike() -> None:
    leaves = [np.asarray(leaf).ravel()[:8] for leaf in jax.tree.leaves(random_params(CONFIG, 1)) if leaf.ndim > 1]
    assert len({leaf.tobytes() for leaf in leaves}) == len(leaves)


def test_a_row_is_one_stream() -> None:
    at = one_stream(2, 4)
    np.testing.assert_array_equal(at.position, [[0, 1, 2, 3]] * 2)
    np.testing.assert_array_equal(at.visible[0, 0], np.tri(4, dtype=bool))


def test_biases_go_to_the_layers_with_experts() -> None:
    biases = (jnp.arange(5.0), -jnp.arange(5.0))
    layers = with_biases(random_params(CONFIG, 1), biases).layers
    assert "expert_bias" not in layers[0]
    np.testing.assert_array_equal([layer["expert_bias"] for layer in layers[1:]], biases)


def test_the_files_hold_what_was_trained(tmp_path: Path) -> None:
    params = random_params(CONFIG, 1)
    biases = (jnp.full(5, 1e-4), jnp.full(5, 1 / 3))
    size = save(tmp_path, params, biases, CONFIG)
    files = load_file(tmp_path / "model.safetensors")
    assert size == (tmp_path / "model.safetensors").stat().st_size
    assert {name: value.shape for name, value in files.items()} == CONFIG.file_tensors()
    np.testing.assert_array_equal(files["model.layers.2.feed_forward.expert_bias"], np.full(5, 1 / 3, np.float32))
    np.testing.assert_array_equal(
        files["model.layers.1.feed_forward.experts.3.w2.weight"], params.layers[1]["w2"][3].astype(jnp.bfloat16)
    )
    assert json.loads((tmp_path / "config.json").read_text()) == json.loads(json.dumps(CONFIG.to_hf()))
    assert json.loads((tmp_path / "generation_config.json").read_text()) == CONFIG.generation_hf()
