"""The teacher: the target's own logits on the draft vocabulary, and targets that cannot teach."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train import served, tiny_run
from tfjax.checkpoints import open_checkpoint
from tfjax.models import llama
from tfjax.models.config import ConfigError
from tfjax.train.small_dense import places
from tfjax.train.small_target import read_embedding, read_teacher, shape_of, target_config, teacher_logits

DRAFT_IDS = np.array([1, 5, 80, 259], np.int32)


@pytest.mark.parametrize("tied", [True, False])
def test_the_teacher_computes_the_targets_logits(tmp_path: Path, tied: bool) -> None:
    checkpoint = open_checkpoint(tiny_run.write_target(tmp_path, tie_word_embeddings=tied))
    config = target_config(checkpoint)
    tokens = [4, 200, 17, 17, 3, 99]
    token = jnp.asarray([tokens])
    at = places(jnp.ones_like(token), jnp.arange(len(tokens))[None])
    embedding = jnp.asarray(read_embedding(checkpoint), jnp.bfloat16)
    teacher = read_teacher(checkpoint, config, DRAFT_IDS)
    found = np.asarray(jax.jit(teacher_logits, static_argnums=3)(teacher, embedding, token, shape_of(config), at))[0]
    expected = served.logits(served.load(tmp_path, llama.FAMILY), llama.FAMILY, tokens)[:, DRAFT_IDS]
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected, atol=0.05 * np.abs(expected).max())


def test_a_target_with_biases_cannot_teach(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_run.write_target(tmp_path, mlp_bias=True))
    config = target_config(checkpoint)
    with pytest.raises(ConfigError, match=r"biases.*--teacher none"):
        read_teacher(checkpoint, config, DRAFT_IDS)


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    tiny_run.write_target(tmp_path, architectures=["MambaForCausalLM"])
    with pytest.raises(ConfigError, match="MambaForCausalLM"):
        target_config(open_checkpoint(tmp_path))
