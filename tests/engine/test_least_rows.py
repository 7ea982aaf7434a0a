from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.row_invariance import rows_of_normals
from tfjax.engine import least_rows
from tfjax.engine.least_rows import find_least_rows
from tfjax.kernels.matmul import rows_matmul

WEIGHTS = [jnp.asarray(rows_of_normals(seed, out, size)) for seed, (out, size) in enumerate([(24, 16), (16, 24)])]


def few_rows_differ(least: int, size: int = 24) -> Any:
    """A product that computes fewer than `least` rows, or too many, another way where the weight has `size` inputs."""

    def product(x: jax.Array, weight: jax.Array) -> jax.Array:
        y = rows_matmul(x, weight)
        return y * (1 + 2**-20) if x.shape[0] < least and weight.shape[1] == size else y

    return product


def test_two_rows_will_do_where_all_agree() -> None:
    found = find_least_rows([*WEIGHTS, jnp.ones(5)])
    assert (found.rows, found.reason) in ((2, ""), (4, found.reason))


@pytest.mark.parametrize(("least", "wanted"), [(2, 2), (3, 4), (4, 4), (5, None), (100, None)])
def test_the_smallest_exact_count_is_found(monkeypatch: pytest.MonkeyPatch, least: int, wanted: int | None) -> None:
    monkeypatch.setattr(least_rows, "_product", few_rows_differ(least))
    found = find_least_rows(WEIGHTS)
    assert found.rows == wanted
    assert bool(found.reason) == (least > 2)
    if found.reason:
        for word in ("rows_matmul", "float32", "[16, 24]", "row 0"):
            assert word in found.reason


def test_equal_shapes_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def product(x: jax.Array, weight: jax.Array) -> jax.Array:
        """Of equal rows on every machine, so that two are enough."""
        calls.append((x.shape, weight.dtype))
        return jnp.zeros((x.shape[0], weight.shape[0]))

    monkeypatch.setattr(least_rows, "_product", product)
    find_least_rows([WEIGHTS[0]] * 5)
    assert len(calls) == len(set(calls))
    one = len(calls)
    find_least_rows([WEIGHTS[0], WEIGHTS[0].astype(jnp.bfloat16)])
    assert len(calls) == 3 * one


def test_the_matrices_of_a_stack_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_rows, "_product", few_rows_differ(3))
    found = find_least_rows([jnp.stack([WEIGHTS[1]] * 3)])
    assert found.rows == 4
    assert "[16, 24]" in found.reason


def test_what_is_too_small_for_a_product_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The taps of a convolution are a matrix, but no product's."""
    monkeypatch.setattr(least_rows, "_product", few_rows_differ(100, size=3))
    assert find_least_rows([jnp.ones((24, 3)), jnp.ones((24, 1, 3))]).rows == 2
