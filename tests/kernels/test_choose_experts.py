"""The choice of experts by both routes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.row_invariance import rows_of_normals
from tfjax.kernels.choose_experts import ChoiceRule, choose_experts
from tfjax.kernels.gpu.launch import Launch
from tfjax.kernels.routes import Route, Unsupported

COLUMNS, LAYERS, LAYER = 64, 3, 1
RULE = ChoiceRule(experts=8, picked=3, normalised=True, scale=1.5, eps=1e-6)


def operator(route: str) -> Any:
    if route == "reference":
        return lambda *arguments, rule: choose_experts(*arguments, rule=rule, route=Route.REFERENCE)
    from tfjax.kernels.gpu import choose_experts as gpu

    return lambda *arguments, rule: gpu.choose_experts(*arguments, rule=rule, how=Launch(interpret=True))


def chosen(
    route: str, logits: NDArray[Any], bias: NDArray[Any] | None, rule: ChoiceRule = RULE, count: int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    stack = None if bias is None else jnp.full((LAYERS, COLUMNS), jnp.nan).at[LAYER].set(bias)
    numbers = jnp.int32(LAYER), jnp.int32(len(logits) if count is None else count)
    found = operator(route)(in_parts(logits), stack, *numbers, rule=rule)
    assert (found[0].dtype, found[1].dtype) == (jnp.int32, jnp.float32)
    live = slice(0, len(logits) if count is None else count)
    assert (np.asarray(found[0])[live, rule.picked :] == -1).all()
    assert not np.asarray(found[1])[live, rule.picked :].any()
    return np.asarray(found[0])[:, : rule.picked], np.asarray(found[1])[:, : rule.picked]


def in_parts(logits: NDArray[Any]) -> jax.Array:
    """Two parts whose sum is exact."""
    return jnp.asarray(np.stack([logits / 2, logits / 2]), jnp.float32)


def material(rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """What stands in padded columns must not matter."""
    logits, bias = 2 * rows_of_normals(0, rows, COLUMNS), rows_of_normals(1, 1, COLUMNS)[0]
    logits[:, RULE.experts :], bias[RULE.experts :] = 9, 9
    return logits, bias


@pytest.mark.parametrize("route", ["reference", "interpreted"])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("normalised", [True, False])
def test_the_rule(route: str, biased: bool, normalised: bool) -> None:
    logits, bias = material(5)
    found, weights = chosen(route, logits, bias if biased else None, RULE._replace(normalised=normalised))
    score = 1 / (1 + np.exp(-logits[:, : RULE.experts].astype(np.float64)))
    ranked = score + bias[: RULE.experts] if biased else score
    wanted = np.argsort(-ranked, axis=1, kind="stable")[:, : RULE.picked]
    own = np.take_along_axis(score, wanted, 1)
    own = own / (own.sum(1, keepdims=True) + RULE.eps) if normalised else own
    assert (found == wanted).all()
    np.testing.assert_allclose(weights, own * RULE.scale, rtol=1e-6)


@pytest.mark.parametrize("route", ["reference", "interpreted"])
def test_of_equal_scores_the_lower_expert_comes_first(route: str) -> None:
    """Sigmoids of large numbers are all 1."""
    logits = np.zeros((2, COLUMNS))
    logits[0], logits[1, [6, 2, 4]] = 40, 40
    found, _ = chosen(route, logits, None)
    assert found.tolist() == [[0, 1, 2], [2, 4, 6]]


def test_a_row_without_numbers_names_experts_that_exist() -> None:
    logits, bias = material(3)
    logits[1] = np.nan
    found, _ = chosen("interpreted", logits, bias)
    assert ((found >= 0) & (found < RULE.experts)).all()
    assert (found[[0, 2]] == chosen("interpreted", logits[[0, 2]], bias)[0]).all()


@pytest.mark.parametrize("route", ["reference", "interpreted"])
def test_rows_do_not_depend_on_company(route: str) -> None:
    logits, bias = material(9)
    whole = chosen(route, logits, bias)
    poisoned = np.full_like(logits, np.nan)
    poisoned[:4] = logits[5:]
    alone = chosen(route, poisoned, bias, count=4)
    for one, other in zip(whole, alone, strict=True):
        assert np.array_equal(one[5:], other[:4])


def test_more_ranks_than_a_warp_holds_are_refused() -> None:
    with pytest.raises(Unsupported, match="40 experts a row"):
        chosen("interpreted", rows_of_normals(0, 1, COLUMNS), None, RULE._replace(experts=64, picked=40))
