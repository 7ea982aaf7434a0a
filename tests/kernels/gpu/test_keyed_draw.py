"""The draw's kernel in the interpreter, and its form for CUDA."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.kernels.gpu.keyed_draw import BLOCK_COLUMNS, block_columns, keyed_draw
from tfjax.kernels.gpu.launch import Launch
from tfjax.kernels.gpu.tiles import WARPGROUP
from tfjax.kernels.keyed_draw import NOT_FINITE, DrawKeys
from tfjax.kernels.keyed_draw import keyed_draw as reference
from tfjax.kernels.routes import Unsupported
from tfjax.kernels.specs import SPECS

interpreted = jax.jit(functools.partial(keyed_draw, how=Launch(interpret=True)))
ROWS, VOCAB, LARGE_VOCAB = 4, 1300, 3 * BLOCK_COLUMNS + 4
"""Few shapes, as each takes the interpreter some seconds. Blocks overlap in both vocabularies."""


def problem(vocab: int, temperature: list[float], *, masked: bool = False) -> tuple[Any, DrawKeys]:
    """Normal logits; where masked, nine of ten tokens cannot be drawn."""
    random, rows = np.random.default_rng(vocab), len(temperature)
    logits = random.normal(0, 2, (rows, vocab)).astype(np.float32)
    if masked:
        logits[random.random(logits.shape) < 0.9] = -np.inf
    return logits, DrawKeys(
        jnp.array(temperature, jnp.float32),
        jnp.array(random.integers(0, 2**32, (rows, 2), dtype=np.uint32)),
        jnp.array(random.integers(1, 5000, rows), jnp.int32),
        jnp.full(rows, masked),
    )


def both(logits: Any, keys: DrawKeys, count: int = ROWS, ids: Any = None) -> tuple[list[int], list[int]]:
    """By the kernel and by the reference."""
    arguments = (jnp.asarray(logits), keys, jnp.int32(count), ids)
    return interpreted(*arguments)[:count].tolist(), reference(*arguments)[:count].tolist()


@pytest.mark.parametrize("vocab", [*(pytest.param(x, marks=pytest.mark.slow) for x in (128, 252, 1024)), LARGE_VOCAB])
def test_draws_what_the_reference_draws(vocab: int) -> None:
    """One block and several, whole and overlapping."""
    for temperature in ([0, 0.7, 1e-30, 2.0], [1.0] * ROWS):
        found, wanted = both(*problem(vocab, temperature))
        assert found == wanted


def test_a_column_has_the_noise_of_its_token() -> None:
    logits, keys = problem(VOCAB, [0.0, 1.0, 1.0, 1.0])
    ids = jnp.array(np.random.default_rng(2).permutation(2 * VOCAB)[:VOCAB], jnp.int32)
    found, wanted = both(logits, keys, ids=ids)
    assert found == wanted
    own = both(logits, keys)[0]
    assert found[0] == own[0]
    assert found[1:] != own[1:]


def test_every_block_can_win() -> None:
    places = [0, BLOCK_COLUMNS - 1, BLOCK_COLUMNS, 2 * BLOCK_COLUMNS, 3 * BLOCK_COLUMNS - 1, 3 * BLOCK_COLUMNS, -2, -1]
    for some in (places[:ROWS], places[ROWS:]):
        logits = np.zeros((ROWS, LARGE_VOCAB), np.float32)
        logits[np.arange(ROWS), some] = 1
        assert both(logits, problem(LARGE_VOCAB, [0.0] * ROWS)[1])[0] == [place % LARGE_VOCAB for place in some]


def test_ties_go_to_the_lower_token_within_a_block_and_between() -> None:
    logits = np.zeros((ROWS, VOCAB), np.float32)
    logits[0, [5, 9, 1200]] = 1
    logits[1, [1023, 1024]] = 1
    logits[2, [500, 1299]] = 1
    assert both(logits, problem(VOCAB, [0.0] * ROWS)[1])[0] == [5, 1023, 500, 0]


def test_masked_tokens_and_whole_masked_blocks() -> None:
    logits, keys = problem(LARGE_VOCAB, [0, 0.7, 1.0, 1.0], masked=True)
    logits[:, : 2 * BLOCK_COLUMNS] = -np.inf
    found, wanted = both(logits, keys)
    assert found == wanted
    assert min(found) >= 2 * BLOCK_COLUMNS
    assert both(np.full_like(logits, -np.inf), keys)[0] == [0] * ROWS


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_told(value: float) -> None:
    logits, keys = problem(VOCAB, [0, 0.7, 0.7, 0])
    logits[0, VOCAB - 1] = logits[1, 3] = value
    found, wanted = both(logits, keys)
    assert found == wanted
    assert [token == NOT_FINITE for token in found] == [True, True, False, False]


def test_rows_that_do_not_count_may_hold_anything() -> None:
    logits, keys = problem(VOCAB, [0.7] * ROWS)
    wanted = both(logits, keys)[1]
    logits[2:] = np.nan
    assert both(logits, keys, 2)[0] == wanted[:2]


def test_blocks_are_as_large_as_the_vocabulary_allows() -> None:
    assert [block_columns(vocab) for vocab in (128, 252, 256, 1020, 1024, 49152)] == [128, 128, 256, 896, 1024, 1024]
    for vocab in (WARPGROUP - 4, 50257):
        with pytest.raises(Unsupported, match=f"vocabulary of {vocab}"):
            block_columns(vocab)


FAST = (49152, 128256)
VOCABULARIES = sorted({spec.vocab for spec in SPECS.values()})


@pytest.mark.parametrize("vocab", [pytest.param(x, marks=() if x in FAST else pytest.mark.slow) for x in VOCABULARIES])
def test_lowers_as_two_starts(vocab: int) -> None:
    """And as one small kernel before them, which packs the keys."""
    kinds = {"temperature": jnp.float32, "position": jnp.int32, "masked": jnp.bool_}
    keys = DrawKeys(
        seed=jax.ShapeDtypeStruct((16, 2), jnp.uint32),
        **{name: jax.ShapeDtypeStruct((16,), kind) for name, kind in kinds.items()},
    )
    arguments = (jax.ShapeDtypeStruct((16, vocab), jnp.float32), keys, jax.ShapeDtypeStruct((), jnp.int32))
    text = jax.jit(keyed_draw).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("custom_call @mosaic_gpu") == 2
    assert text.count("stablehlo.concatenate") == 1
    ids = jax.ShapeDtypeStruct((vocab,), jnp.int32)
    assert "mosaic_gpu" in jax.jit(keyed_draw).trace(*arguments, ids).lower(lowering_platforms=("cuda",)).as_text()
