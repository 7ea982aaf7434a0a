"""The chance that coupled draws agree: drawn, by hand, and what the restriction to likely tokens does to it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tfjax.kernels.noise import gumbel
from tfjax.train import dspark_coupling
from tfjax.train.dspark_coupling import likely_columns, log_kept


def distributions(tokens: int, seed: int, size: float = 2.0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two that are alike."""
    random = np.random.default_rng(seed)
    own = random.normal(0, size, tokens)
    pair = np.exp([own, own + random.normal(0, 0.5 * size, tokens)])
    p, q = pair / pair.sum(1, keepdims=True)
    return p, q


def by_hand(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    return float(sum(1 / np.maximum(p / p[i], q / q[i]).sum() for i in range(len(p))))


def chance(p: NDArray[np.float64], q: NDArray[np.float64], most: int = 64) -> float:
    log_p, log_q = (jnp.log(jnp.asarray(part)) for part in (p, q))
    return float(jnp.exp(log_kept(log_p, log_q, likely_columns(log_p, most))))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_is_how_often_the_served_noise_draws_one_token(seed: int) -> None:
    p, q = distributions(40, seed)
    draws = 40_000
    rows = jnp.stack([jnp.full(draws, seed, jnp.uint32), jnp.zeros(draws, jnp.uint32)], -1)
    noise = gumbel(rows, jnp.arange(draws), jnp.arange(40))
    agree = jnp.argmax(jnp.log(jnp.asarray(p)) + noise, -1) == jnp.argmax(jnp.log(jnp.asarray(q)) + noise, -1)
    assert float(agree.mean()) == pytest.approx(chance(p, q), abs=4 * 0.5 / np.sqrt(draws))
    assert chance(p, q) == pytest.approx(by_hand(p, q), rel=1e-4)


def test_it_lies_between_the_bounds_of_the_overlap() -> None:
    for seed in range(20):
        p, q = distributions(30, seed)
        apart = np.abs(p - q).sum() / 2
        assert (1 - apart) / (1 + apart) - 1e-5 <= chance(p, q) <= 1 - apart + 1e-5


def test_equal_distributions_always_agree_and_separate_ones_never() -> None:
    p, _ = distributions(30, 0)
    assert chance(p, p) == pytest.approx(1, abs=1e-5)
    assert chance(np.array([1 - 1e-9, 1e-9]), np.array([1e-9, 1 - 1e-9])) < 1e-6


@pytest.mark.parametrize("tokens", [250, 700])
def test_the_likely_tokens_tell_nearly_all(tokens: int) -> None:
    p, q = distributions(tokens, 5, size=3.0)
    assert chance(p, q) == pytest.approx(by_hand(p, q), abs=0.03)
    assert chance(p, q, 8) < chance(p, q, 32) < chance(p, q, 128) <= by_hand(p, q) + 1e-5


def test_what_the_likely_tokens_lack_stands_against_them() -> None:
    """A drafter whose mass lies elsewhere is not taken for one that is sure of the little it has in common."""
    p, q = np.array([0.5, 0.3, 0.1, 0.1]), np.array([0.05, 0.03, 0.46, 0.46])
    assert chance(p, q, 2) == pytest.approx(1 / (1 + 0.6 + 18.4) + 1 / (5 / 3 + 1 + 92 / 3), rel=1e-4)


def test_a_token_that_cannot_be_drafted_stands_against_all() -> None:
    whole, rest = np.array([0.5, 0.2]), np.array([0.7, 0.3])
    assert chance(whole, rest) == pytest.approx(1 / (1 + 3 / 7 + 0.6) + 1 / (2.5 + 1 + 1.5), rel=1e-4)


def test_likely_tokens_are_one_of_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dspark_coupling, "GROUPS", 4)
    log_p = jnp.array([[0.0, 9.0, 8.0, 1.0, 2.0, 7.0, 3.0, 4.0, 5.0, 6.0]])
    found = likely_columns(log_p, 3)
    assert sorted(found[0].tolist()) == [1, 2, 8]


def test_the_gradient_raises_the_chance() -> None:
    p, q = distributions(300, 7)
    log_p, logits = (jnp.log(jnp.asarray(part, jnp.float32)) for part in (p, q))

    likely = likely_columns(log_p)

    @jax.jit
    def agree(logits: jax.Array) -> jax.Array:
        return jnp.exp(log_kept(log_p, jax.nn.log_softmax(logits), likely))

    before = float(agree(logits))
    climb = jax.jit(jax.grad(agree))
    for _ in range(100):
        logits = logits + 5 * climb(logits)
    assert bool(jnp.isfinite(logits).all())
    assert float(agree(logits)) > before + 0.05
