from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.row_invariance import assert_row_invariant, rows_of_normals
from tfjax.kernels.keyed_draw import NOT_FINITE, DrawKeys, keyed_draw
from tfjax.kernels.noise import gumbel
from tfjax.kernels.routes import Route, Unsupported

VOCAB = 321
LOGITS = rows_of_normals(1, 140, VOCAB) * np.float32(2)
drawn = jax.jit(keyed_draw)


def keys(rows: int, temperature: Any = 1.0, *, masked: Any = False, seed: int = 3) -> DrawKeys:
    random = np.random.default_rng(seed)
    return DrawKeys(
        np.broadcast_to(np.float32(temperature), rows),
        random.integers(0, 2**32, (rows, 2), dtype=np.uint32),
        random.integers(1, 5000, rows).astype(np.int32),
        np.broadcast_to(np.bool_(masked), rows),
    )


def of(logits: Any, by: DrawKeys) -> list[int]:
    found: list[int] = drawn(logits, by, jnp.int32(len(logits))).tolist()
    return found


def test_a_cold_row_draws_its_largest_logit() -> None:
    assert of(LOGITS[:8], keys(8, 0)) == LOGITS[:8].argmax(-1).tolist()


def test_a_warm_row_adds_its_tokens_noise() -> None:
    by = keys(9, np.linspace(0.2, 3, 9))
    noise = np.asarray(gumbel(jnp.asarray(by.seed), jnp.asarray(by.position), jnp.arange(VOCAB)))
    scaled = (LOGITS[:9] - LOGITS[:9].max(-1, keepdims=True)) / by.temperature[:, None]
    assert of(LOGITS[:9], by) == (scaled + noise).argmax(-1).tolist()


def test_every_row_has_its_own_temperature() -> None:
    by = keys(8, [0, 2] * 4)
    alone = [of(LOGITS[i : i + 1], DrawKeys(*(x[i : i + 1] for x in by)))[0] for i in range(8)]
    assert of(LOGITS[:8], by) == alone
    assert alone[::2] == LOGITS[:8:2].argmax(-1).tolist()
    assert alone[1::2] != LOGITS[1:8:2].argmax(-1).tolist()


def test_ties_go_to_the_lower_token() -> None:
    logits = np.zeros((2, VOCAB), np.float32)
    logits[0, [9, 30, 55]] = 4
    assert of(logits, keys(2, 0)) == [9, 0]


def test_masked_tokens_are_not_drawn() -> None:
    logits = np.full((40, VOCAB), -np.inf, np.float32)
    logits[:, 100:103] = -1e30
    found = of(logits, keys(40, 1.5, masked=True))
    assert set(found) == {100, 101, 102}


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_a_row_with_nothing_to_draw_draws_the_first(temperature: float) -> None:
    """As the largest of equals; no row comes out beyond the vocabulary."""
    assert of(np.full((1, VOCAB), -np.inf, np.float32), keys(1, temperature, masked=True)) == [0]


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_what_is_not_finite_is_told(temperature: float) -> None:
    """-inf is a number only where it marks what is masked."""
    logits = LOGITS[:7].copy()
    logits[[0, 1, 2], 17] = np.nan, np.inf, -np.inf
    logits[[4, 5, 6], 17] = np.nan, np.inf, -np.inf
    by = keys(7, temperature, masked=[False, False, False, False, True, True, True])
    assert [token == NOT_FINITE for token in of(logits, by)] == [True, True, True, False, True, True, False]


def test_a_column_is_drawn_by_its_tokens_noise() -> None:
    ids = np.random.default_rng(2).permutation(VOCAB)[:200].astype(np.int32)
    logits = np.full((30, VOCAB), -1e4, np.float32)
    logits[:, ids] = LOGITS[:30, ids]
    by = keys(30)
    columns = drawn(logits[:, ids], by, jnp.int32(30), ids)
    assert ids[np.asarray(columns)].tolist() == of(logits, by)


def test_rows_are_invariant() -> None:
    by = keys(140, np.random.default_rng(5).choice([0, 0.7, 1.3], 140))

    def draw(logits: Any, place: Any) -> Any:
        return np.asarray(of(logits, DrawKeys(*(x[place] for x in by))), np.int32)

    assert_row_invariant(draw, LOGITS, np.arange(140), counts=(1, 2, 9, 64))


def test_the_device_route_refuses_what_it_cannot_cut() -> None:
    with pytest.raises(Unsupported, match=r"vocabulary of 321.*reference route"):
        keyed_draw(jnp.asarray(LOGITS[:1]), keys(1), jnp.int32(1), route=Route.PALLAS_GPU)
