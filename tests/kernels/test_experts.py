from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.row_invariance import assert_row_invariant, bits, rows_of_normals, violation
from tfjax.kernels import experts as kernel
from tfjax.kernels.experts import (
    LEAST_TILE,
    MOST_TILE,
    Experts,
    all_experts,
    experts_mlp,
    grouped_by_expert,
    in_order_of_rank,
    tile_rows,
)
from tfjax.kernels.matmul import rows_matmul

COUNTS = (1, 2, 3, 5, 7, 16, 17, 33, 130)
SIZE, INNER = 24, 16
FORMS = pytest.mark.parametrize("form", [grouped_by_expert, all_experts])


def weights(experts: int, dtype: Any = np.float32) -> Experts:
    gate_up, down = (
        rows_of_normals(seed, experts, *shape, dtype=dtype)
        for seed, shape in ((1, (2 * INNER, SIZE)), (2, (SIZE, INNER)))
    )
    return Experts(jnp.asarray(gate_up), jnp.asarray(down))


def choices(rows: int, ranks: int, experts: int, seed: int = 3) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    chosen = np.stack([random.permutation(experts)[:ranks] for _ in range(rows)]).astype(np.int32)
    return chosen, random.random((rows, ranks), np.float32)


def wanted(x: Any, chosen: Any, weight: Any, experts: Experts) -> NDArray[np.float64]:
    """Row by row in float64."""
    x, gate_up, down = (np.asarray(array, np.float64) for array in (x, *experts))
    total = np.zeros_like(x)
    for row, rank in np.ndindex(chosen.shape):
        gate, up = np.split(gate_up[chosen[row, rank]] @ x[row], 2)
        total[row] += weight[row, rank] * (down[chosen[row, rank]] @ (gate / (1 + np.exp(-gate)) * up))
    return total


@FORMS
@pytest.mark.parametrize(("rows", "ranks", "experts"), [(1, 2, 8), (40, 2, 8), (5, 3, 3), (33, 1, 4), (200, 4, 16)])
def test_equals_the_sum_over_experts(form: Any, rows: int, ranks: int, experts: int) -> None:
    x, (chosen, weight) = rows_of_normals(0, rows, SIZE), choices(rows, ranks, experts)
    found = in_order_of_rank(jax.jit(form)(x, chosen, weights(experts)), weight)
    np.testing.assert_allclose(found, wanted(x, chosen, weight, weights(experts)), rtol=1e-4, atol=1e-3)


def test_all_rows_may_choose_one_expert() -> None:
    x, weight = rows_of_normals(0, 150, SIZE), np.ones((150, 1), np.float32)
    for expert in (0, 7):
        chosen = np.full((150, 1), expert, np.int32)
        found = jax.jit(experts_mlp)(x, chosen, weight, weights(8))
        np.testing.assert_allclose(found, wanted(x, chosen, weight, weights(8)), rtol=1e-4, atol=1e-3)


def operator(ranks: int, experts: int, dtype: Any) -> Callable[..., Any]:
    matrices = weights(experts, dtype)
    return jax.jit(lambda x, chosen, weight: experts_mlp(x, chosen, weight, matrices))


@pytest.mark.parametrize(
    ("ranks", "experts", "dtype"),
    [
        (2, 8, ml_dtypes.bfloat16),
        (3, 5, np.float32),
        pytest.param(4, 16, ml_dtypes.bfloat16, marks=pytest.mark.slow),
        pytest.param(4, 16, np.float32, marks=pytest.mark.slow),
    ],
)
def test_a_row_has_the_same_bits_beside_any_others(ranks: int, experts: int, dtype: Any) -> None:
    chosen, weight = choices(max(COUNTS), ranks, experts)
    x = rows_of_normals(0, max(COUNTS), SIZE, dtype=dtype)
    assert_row_invariant(operator(ranks, experts, dtype), x, chosen, weight, counts=COUNTS)


def test_the_bits_do_not_depend_on_what_other_rows_choose() -> None:
    """The same row where its expert is crowded, where it is alone, and where its tile is shared."""
    x, (chosen, weight) = rows_of_normals(0, 33, SIZE, dtype=ml_dtypes.bfloat16), choices(33, 2, 8)
    run = operator(2, 8, ml_dtypes.bfloat16)
    alone = bits(run(x, chosen, weight))[0]
    for other in ([chosen[0, 0], chosen[0, 1]], [chosen[0, 1], chosen[0, 0]], [(chosen[0, 0] + 3) % 8, 7]):
        changed = chosen.copy()
        changed[1:] = other
        assert np.array_equal(bits(run(x, changed, weight))[0], alone)


def test_the_order_of_a_rows_ranks_counts() -> None:
    """The control of the fixed order: another order gives other bits."""
    x, (chosen, weight) = rows_of_normals(0, 40, SIZE), choices(40, 4, 8)
    run = operator(4, 8, np.float32)
    turned = run(x, chosen[:, ::-1].copy(), weight[:, ::-1].copy())
    np.testing.assert_allclose(turned, run(x, chosen, weight), rtol=1e-4, atol=1e-4)
    assert not np.array_equal(bits(turned), bits(run(x, chosen, weight)))


def test_tiles_are_what_an_expert_gets_on_average() -> None:
    assert [tile_rows(rows, 2, 8) for rows in (1, 2, 3, 4, 16, 17, 32, 128, 512)] == [2, 2, 3, 4, 4, 8, 8, 32, 64]
    assert tile_rows(4096, 4, 8) == MOST_TILE
    assert tile_rows(64, 1, 64) == LEAST_TILE


@pytest.mark.parametrize(("platform", "sorts"), [("cpu", True), ("cuda", False), ("mps", True)])
def test_a_gpu_computes_every_expert(platform: str, sorts: bool) -> None:
    x, (chosen, weight) = rows_of_normals(0, 8, SIZE), choices(8, 2, 8)
    exported = jax.export.export(jax.jit(experts_mlp), platforms=[platform])(x, chosen, weight, weights(8))
    assert ("stablehlo.sort" in str(exported.mlir_module())) == sorts


# Faults that the comparison must show.


def seen(form: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> bool:
    monkeypatch.setattr(kernel, name, form)
    x, (chosen, weight), matrices = rows_of_normals(0, 130, SIZE), choices(130, 2, 8), weights(8)

    def spoilt(x: Any, chosen: Any, weight: Any) -> Any:
        return kernel.in_order_of_rank(kernel.grouped_by_expert(x, chosen, matrices), weight)

    return violation(jax.jit(spoilt), x, chosen, weight, counts=(3, 130)) is not None


def test_a_product_whose_bits_depend_on_its_rows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def product(x: jax.Array, weight: jax.Array) -> jax.Array:
        return rows_matmul(x, weight) * (1 + 2**-20 if x.shape[0] > 16 else 1)

    assert seen(product, monkeypatch, "rows_matmul")


def test_a_tile_that_begins_in_the_wrong_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernel._grouped

    def shifted(chosen: jax.Array, experts: int, tile: int) -> Any:
        groups = right(chosen, experts, tile)
        return groups._replace(start=groups.start + 1)

    assert seen(shifted, monkeypatch, "_grouped")


def test_an_order_that_the_batch_decides_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_batch(outputs: jax.Array, weight: jax.Array) -> jax.Array:
        """Sums of two ranks in an order that the number of rows decides."""
        order = [1, 0] if outputs.shape[0] > 8 else [0, 1]
        total = jnp.zeros(outputs.shape[::2], jnp.float32) + 1
        for rank in order:
            total = total + outputs[:, rank] * weight[:, rank : rank + 1]
        return total

    assert seen(by_batch, monkeypatch, "in_order_of_rank")
