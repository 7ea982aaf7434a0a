from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.row_invariance import assert_row_invariant, rows_of_normals
from tfjax.kernels.filters import keep_mask, keep_top_k, keep_top_p, sort_key

VOCAB = 97
masks = jax.jit(keep_mask)


def reference(logits: NDArray[np.float32], top_k: int, top_p: float, min_p: float) -> NDArray[np.bool_]:
    """By sorting: best first, lower id first on ties."""
    order = np.lexsort((np.arange(len(logits)), -logits))
    weight = np.exp(logits.astype(np.float64) - logits.max())[order]
    count = min(top_k, len(logits)) if top_k > 0 else len(logits)
    if top_p < 1:
        share = np.cumsum(weight[:count]) / weight[:count].sum()
        count = min(count, 1 + int(np.sum(share < top_p)))
    kept = np.zeros(len(logits), bool)
    kept[order[:count]] = True
    return kept & (np.exp(logits.astype(np.float64) - logits.max()) >= min_p)


def kept(logits: NDArray[np.float32], top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> NDArray[np.bool_]:
    """Through the jitted operator, as the middle one of three rows with other rules."""
    rows = np.stack([logits[::-1], logits, np.zeros_like(logits)])
    found = masks(rows, np.array([3, top_k, 0]), np.float32([0.4, top_p, 1.0]), np.float32([0.1, min_p, 0.0]))
    return np.asarray(found[1])


def logit_rows() -> dict[str, NDArray[np.float32]]:
    normal = rows_of_normals(0, 3, VOCAB) * np.float32(3)
    signed = np.zeros(VOCAB, np.float32)
    signed[::2] = -0.0
    tail = np.where(np.arange(VOCAB) % 5 == 0, normal[1], -np.inf).astype(np.float32)
    extreme = np.full(VOCAB, -3e38, np.float32)
    extreme[[4, 9]] = [3e38, 1e38]
    return {
        "random": normal[0],
        "tied": np.round(normal[1]).astype(np.float32),
        "equal": np.full(VOCAB, -2.5, np.float32),
        "signed zeros": signed,
        "with -inf": tail,
        "peaked": normal[2] * np.float32(30),
        "extreme": extreme,
        "tiny": normal[0] * np.float32(1e-30),
    }


ROWS = logit_rows()


@pytest.mark.parametrize("logits", ROWS.values(), ids=ROWS.keys())
def test_equals_the_sorting_reference(logits: NDArray[np.float32]) -> None:
    for top_k in (0, 1, 2, 7, VOCAB - 1, VOCAB, 10 * VOCAB):
        for top_p in (1.0, 0.97, 0.503, 0.1, 1e-6):
            for min_p in (0.0, 0.07, 1.0):
                found, wanted = kept(logits, top_k, top_p, min_p), reference(logits, top_k, top_p, min_p)
                assert np.array_equal(found, wanted), (top_k, top_p, min_p, found.sum(), wanted.sum())


@pytest.mark.parametrize("logits", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("top_p", [0.0, 1e-45, 1e-38])
def test_the_most_likely_token_is_always_kept(logits: NDArray[np.float32], top_p: float) -> None:
    found = kept(logits, top_p=top_p)
    assert found[np.argmax(logits)]
    assert found.sum() == 1


def test_top_k_ties_resolve_by_lower_id() -> None:
    logits = np.array([1, 2, 2, 3, 2, 2], np.float32)
    assert kept(logits, top_k=3).tolist() == [False, True, True, True, False, False]


def test_top_p_keeps_the_token_that_reaches_the_share() -> None:
    logits = np.log(np.array([0.1, 0.5, 0.3, 0.1], np.float32))
    assert kept(logits, top_p=0.5001).tolist() == [False, True, True, False]
    assert kept(logits, top_p=0.4999).tolist() == [False, True, False, False]


def test_top_p_takes_its_share_of_what_top_k_left() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    assert kept(logits, top_k=2, top_p=0.55).tolist() == [True, False, False, False]
    assert kept(logits, top_p=0.55).tolist() == [True, True, False, False]


def test_min_p_is_relative_to_the_most_likely_token() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.21, 0.09], np.float32))
    assert kept(logits, min_p=0.5).tolist() == [True, True, True, False]


def test_filters_that_are_off_keep_all() -> None:
    for logits in ROWS.values():
        assert kept(logits).all()
        assert kept(logits, top_k=-1).all()


def test_keys_order_as_the_floats_do() -> None:
    values = np.array([-np.inf, -3e38, -1.5, -2e-38, 0.0, 2e-38, 1.5, 3e38, np.inf], np.float32)
    keys = np.asarray(sort_key(jnp.asarray(values))).astype(np.int64)
    assert (np.diff(keys) > 0).all()
    assert sort_key(jnp.float32(-0.0)) == sort_key(jnp.float32(0.0))


def test_parts_agree_with_the_whole() -> None:
    logits = jnp.asarray(ROWS["random"])[None]
    key, weight = sort_key(logits), jnp.exp(logits - logits.max())
    by_k = keep_top_k(key, jnp.array([[9]]))
    assert np.array_equal(by_k[0], reference(ROWS["random"], 9, 1.0, 0.0))
    by_p = keep_top_p(key, weight, by_k, jnp.array([[0.6]]))
    assert np.array_equal(by_p[0], reference(ROWS["random"], 9, 0.6, 0.0))


def test_rows_are_invariant() -> None:
    random = np.random.default_rng(2)
    rows = np.round(rows_of_normals(3, 140, VOCAB) * 8).astype(np.float32) / 4
    top_k = random.integers(0, 40, 140)
    top_p = random.choice([1.0, 0.9, 0.5, 0.01], 140).astype(np.float32)
    min_p = random.choice([0.0, 0.05], 140).astype(np.float32)
    assert_row_invariant(masks, rows, top_k, top_p, min_p, counts=(1, 2, 8, 33))
