from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks.random_weights import random_model
from benchmarks.windows import Windows, llama_of, read_bytes
from benchmarks.xla_window import dense_window
from tests.models.tiny_stacked import stacked_form
from tfjax.engine.kernel_choice import Kernels
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.routes import Route
from tfjax.kernels.specs import SPECS, TINY
from tfjax.models.llama import FAMILY

CONFIG = llama_of(TINY, 2)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return random_model(FAMILY, CONFIG, jnp.float32, "reference")


def test_what_a_window_reads_is_all_but_the_embedding(model: LoadedModel) -> None:
    norms = (2 * CONFIG.layers + 1) * CONFIG.hidden
    embedding = CONFIG.vocab * CONFIG.hidden
    assert read_bytes(CONFIG, itemsize=4) == model.weight_bytes - 4 * (norms + embedding)


def test_the_published_size_reads_fifteen_gigabytes_and_keys_and_values_of_the_context() -> None:
    config = llama_of(SPECS["Llama-3-8B"], 32)
    assert read_bytes(config) == pytest.approx(15.0e9, rel=0.01)
    assert (
        read_bytes(config, 32_768) - read_bytes(config)
        == FAMILY.cache_bytes_per_position(config, jnp.bfloat16) * 32_768
    )


def test_a_row_has_the_same_logits_among_others_and_in_stacked_form(model: LoadedModel) -> None:
    stacked = replace(
        model, module=stacked_form(model.module), kernels=Kernels(Route.REFERENCE, "a test", stacked=True)
    )
    few, many = (Windows(one, 256, 16) for one in (model, stacked))
    first = np.asarray(few.call(3, 8, 0)())
    assert first.shape == (8, CONFIG.vocab)
    np.testing.assert_allclose(first[:3], np.asarray(many.call(16, 16, 0)())[:3], atol=1e-4)


def test_rows_attend_to_those_before_them(model: LoadedModel) -> None:
    windows = Windows(model, 256, 16)
    together = np.asarray(windows.call(8, 8, 0)())
    np.testing.assert_allclose(np.asarray(windows.call(4, 8, 4)())[:4], together[4:], atol=1e-4)
    assert np.abs(np.asarray(Windows(model, 256, 16).call(4, 8, 4)())[:4] - together[4:]).max() > 1e-3


def test_only_the_last_row_is_drawn_where_that_is_asked(model: LoadedModel) -> None:
    windows = Windows(model, 256, 16)
    drawn = np.asarray(windows.call(5, 8, 0, drawn=2)())
    np.testing.assert_allclose(drawn, np.asarray(windows.call(5, 8, 0)())[[4, 4]], atol=1e-5)


def test_the_window_that_xla_likes_best_computes_the_same(model: LoadedModel) -> None:
    windows = Windows(model, 256, 16)
    parameters = nnx.state(model.module)
    embedding = parameters["embedding"].get_value()
    rows = 6
    wanted = np.asarray(windows.call(rows, 8, 0)())[:rows]
    tokens = np.random.default_rng(0).integers(0, CONFIG.vocab, 1 << 15)[:rows]
    # The dense window computes tokens 0, 1, 2 and so on: give them the rows of those that the other one computes.
    moved = embedding.at[: len(tokens)].set(embedding[jnp.asarray(tokens)])
    nnx.update(model.module, {"embedding": moved})
    try:
        found = np.asarray(dense_window(model, rows, 0)())
        drawn = np.asarray(dense_window(model, rows, 0, drawn=2)())
    finally:
        nnx.update(model.module, {"embedding": embedding})
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    np.testing.assert_allclose(drawn, wanted[-2:], atol=1e-4)
    assert isinstance(embedding, jax.Array)
