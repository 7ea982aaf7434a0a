from __future__ import annotations

import json
from importlib import resources

import pytest

from tfjax.kernels.gpu.plans import Form, Plan, grouped_plan_of, padded_rows, plan_of, split_of
from tfjax.kernels.routes import Unsupported
from tfjax.kernels.specs import SPECS


def table(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(resources.files("tfjax.kernels.gpu").joinpath(name).read_text("utf-8"))
    return found


def test_every_product_of_a_published_size_is_pinned() -> None:
    pinned = table("splits.json")
    for spec in SPECS.values():
        for part, (inner, columns) in spec.products.items():
            assert f"{inner}x{columns}" in pinned, f"{spec.name} {part}"
            assert inner % (split_of(inner, columns) * 64) == 0


def test_the_pinned_splits_of_the_default_models() -> None:
    """Another split is another arithmetic: replies change."""
    sizes = {(4096, 6144): 2, (4096, 4096): 4, (14336, 4096): 4, (576, 960): 3, (576, 576): 3, (1536, 576): 4}
    assert {size: split_of(*size) for size in sizes} == sizes
    assert split_of(64, 64) == 1


def test_tuned_tiles_are_read_and_others_fit() -> None:
    assert plan_of(4096, 128256, 16) == Plan(Form.WEIGHTS, 16, 256, 64, 4)
    assert plan_of(4096, 14336, 64, gated=True) == Plan(Form.WEIGHTS, 64, 128, 64, 4)
    assert plan_of(576, 960, 32) == Plan(Form.WEIGHTS, 32, 64, 64, 6)
    assert plan_of(576, 960, 256) == Plan(Form.ROWS, 128, 64, 64, 4)


@pytest.mark.parametrize("size", [(100, 64), (64, 100)])
def test_sizes_without_tiles_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(Unsupported, match="reference route"):
        plan_of(*size, 16)


@pytest.mark.parametrize(("rows", "padded"), [(1, 8), (8, 8), (9, 16), (64, 64), (65, 128), (129, 256), (2048, 2048)])
def test_padded_rows(rows: int, padded: int) -> None:
    assert padded_rows(rows) == padded


def test_experts_take_the_tile_of_their_rows_and_two_steps_at_least() -> None:
    assert grouped_plan_of(2048, 1536, 8) == Plan(Form.WEIGHTS, 8, 64, 64, 6)
    assert grouped_plan_of(64, 256, 16).inner == 32
    for size in ((100, 64), (64, 100)):
        with pytest.raises(Unsupported, match="reference route"):
            grouped_plan_of(*size, 8)
