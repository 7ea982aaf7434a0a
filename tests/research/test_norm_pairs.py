"""The measure of order against rotating and norming itself, and the names that it finds norms by."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tfjax.models.blocks.qk_norm import QKNorm, prepare_heads
from tfjax.research.norm_pairs import LayerDifference, layer_differences, pair_difference, total_difference

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.uniform(0.2, 3, 16)


def measured(weight: NDArray[np.float64], *, interleaved: bool) -> float:
    """Random heads at random positions in both orders: root mean square of the change over that of the head."""
    heads = jnp.asarray(np.random.default_rng(1).normal(0, 1, (20_000, 1, weight.size)), jnp.float32)
    position = jnp.asarray(np.random.default_rng(2).integers(0, 100_000, 20_000), jnp.int32)
    frequency = jnp.asarray(np.random.default_rng(3).uniform(0.5, 1.5, weight.size // 2), jnp.float32)

    def norm(x: jnp.ndarray) -> jnp.ndarray:
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True)) * jnp.asarray(weight, jnp.float32)

    before, after = (
        prepare_heads(heads, norm, position, frequency, order=order, interleaved=interleaved)
        for order in (QKNorm.BEFORE_ROPE, QKNorm.AFTER_ROPE)
    )
    return math.sqrt(float(jnp.sum((before - after) ** 2) / jnp.sum(before**2)))


@pytest.mark.parametrize("interleaved", [False, True])
def test_it_is_how_much_the_order_changes_heads(interleaved: bool) -> None:
    expected = measured(WEIGHT, interleaved=interleaved)
    assert pair_difference(WEIGHT, interleaved=interleaved) == pytest.approx(expected, rel=0.02)
    assert expected > 0.3


def test_the_pairs_are_those_of_the_rotation() -> None:
    halves = np.concatenate([WEIGHT[:8], WEIGHT[:8]])
    neighbours = np.repeat(WEIGHT[:8], 2)
    assert pair_difference(halves, interleaved=False) == 0
    assert pair_difference(neighbours, interleaved=True) == 0
    assert pair_difference(halves, interleaved=True) > 0.2
    assert pair_difference(neighbours, interleaved=False) > 0.2
    assert measured(halves, interleaved=False) < 1e-3


def test_its_range() -> None:
    assert pair_difference(np.ones(8), interleaved=False) == 0
    assert pair_difference(np.array([3.0, 0.0, 5.0, 0.0]), interleaved=True) == pytest.approx(1)
    assert pair_difference(np.array([3.0, -3.0]), interleaved=True) == pytest.approx(math.sqrt(2))
    assert pair_difference(5 * WEIGHT, interleaved=True) == pytest.approx(pair_difference(WEIGHT, interleaved=True))


@pytest.mark.parametrize("weight", [np.ones(3), np.ones((2, 2)), np.zeros(4)])
def test_a_weight_without_pairs_is_refused(weight: NDArray[np.float64]) -> None:
    with pytest.raises(ValueError, match="pairs"):
        pair_difference(weight, interleaved=False)


@pytest.mark.parametrize("form", ["layers.{}.self_attn.{}_norm", "model.layers.{}.self_attn.{}_layernorm"])
def test_norms_are_found_by_their_names(form: str) -> None:
    tensors = {f"{form.format(layer, part)}.weight": RANDOM.uniform(1, 2, 8) for layer in (10, 2) for part in "qk"}
    other = {"layers.0.self_attn.q_proj.weight": np.ones((4, 4)), "norm.weight": np.ones(8)}
    found = layer_differences(tensors | other, interleaved=True)
    assert [layer.layer for layer in found] == [2, 10]
    assert found[0].k == pair_difference(tensors[f"{form.format(2, 'k')}.weight"], interleaved=True)
    assert found[0].q != found[0].k


def test_a_norm_without_its_partner_is_refused() -> None:
    with pytest.raises(ValueError, match="layer 3 has a norm of q only"):
        layer_differences({"layers.3.self_attn.q_norm.weight": WEIGHT}, interleaved=True)


def test_layers_together() -> None:
    assert total_difference([LayerDifference(0, 0.3, 0.4), LayerDifference(1, 0.0, 0.0)]) == pytest.approx(0.25)
    assert total_difference([]) == 0
