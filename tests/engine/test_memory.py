from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from tfjax.engine.memory import (
    CPU_SHARE,
    DEVICE_SHARE,
    LEAST_CONTEXT,
    PROMPT_CACHE_BYTES,
    DoesNotFit,
    MemoryPlan,
    bytes_of_gib,
    host_memory,
    memory_budget,
    plan_memory,
)
from tfjax.kernels.paged_attention import BLOCK_KEYS, PAGE_ROWS

PER_POSITION, PER_LANE, WEIGHTS = 1000, 250_000, 1_000_000


def planned(budget_bytes: int = 10**9, **changes: Any) -> MemoryPlan:
    asked = {
        "model_context": 8192,
        "asked": None,
        "lanes": 4,
        "bytes_per_position": PER_POSITION,
        "bytes_per_lane": PER_LANE,
        "weight_bytes": WEIGHTS,
    }
    return plan_memory(budget_bytes=budget_bytes, **(asked | changes))


def test_every_lane_gets_the_whole_context_where_it_fits() -> None:
    plan = planned()
    assert (plan.context, plan.context_fitted, plan.lanes, plan.pages) == (8192, False, 4, 4 * 128)
    assert plan.cache_bytes == (4 * 128 + 1) * PAGE_ROWS * PER_POSITION


@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
@pytest.mark.parametrize("budget_bytes", [3_000_000, 5_000_000, 20_000_000, 60_000_000])
@pytest.mark.parametrize("context", [100, 2048, 8192])
def test_what_is_planned_stays_within_the_budget(lanes: int, budget_bytes: int, context: int) -> None:
    try:
        plan = planned(budget_bytes, lanes=lanes, model_context=context)
    except DoesNotFit:
        least = min(context, LEAST_CONTEXT)
        needed = (
            WEIGHTS + (lanes + 1) * PER_LANE + (lanes * (least + PAGE_ROWS) + 2 * BLOCK_KEYS * lanes) * PER_POSITION
        )
        assert budget_bytes < needed
        return
    assert plan.weight_bytes + plan.cache_bytes + (lanes + 1) * PER_LANE <= budget_bytes
    assert plan.pages * PAGE_ROWS >= lanes * plan.context
    assert plan.context_fitted == (plan.context < context)
    if plan.context_fitted:
        assert plan.context % BLOCK_KEYS == 0
        bigger = plan.context + BLOCK_KEYS
        more = WEIGHTS + (lanes + 1) * PER_LANE + lanes * (bigger + PAGE_ROWS) * PER_POSITION
        assert more > budget_bytes, "a larger context would have fitted"


def test_an_asked_context_is_given_or_refused_never_cut() -> None:
    assert planned(asked=1000).context == 1000
    assert planned(asked=1000).pages == 4 * 16
    with pytest.raises(DoesNotFit) as refusal:
        planned(20_000_000, asked=6000)
    for word in ("4 requests of 6000", "--context", "--parallel", "GiB"):
        assert word in str(refusal.value)


def test_more_than_the_models_context_is_refused() -> None:
    with pytest.raises(DoesNotFit, match=r"--context 8193.*8192"):
        planned(asked=8193)
    assert planned(asked=8192).context == 8192


def test_weights_that_fill_the_memory_are_refused() -> None:
    with pytest.raises(DoesNotFit, match=r"GiB of weights"):
        planned(10**9, weight_bytes=2 * 10**9)


def test_a_small_models_whole_context_is_enough() -> None:
    assert planned(model_context=40).context == 40


def test_the_page_table_is_whole_blocks() -> None:
    for context in (1, 64, 65, 128, 129, 1000):
        plan = replace(planned(), context=context)
        assert plan.pages_per_lane * PAGE_ROWS >= context
        assert plan.pages_per_lane * PAGE_ROWS % BLOCK_KEYS == 0
        assert (plan.pages_per_lane * PAGE_ROWS - context) < BLOCK_KEYS


def test_kept_prompts_get_what_the_contexts_leave_where_nobody_asks() -> None:
    page_bytes = PAGE_ROWS * PER_POSITION
    roomy = planned(10**10, prompt_cache_bytes=None)
    assert roomy.prompt_pages == PROMPT_CACHE_BYTES // page_bytes
    assert roomy.pages == 4 * 128 + roomy.prompt_pages
    assert (roomy.cache_bytes, roomy.prompt_cache_bytes) == (
        (roomy.pages + 1) * page_bytes,
        roomy.prompt_pages * page_bytes,
    )
    tight = planned(10**9, prompt_cache_bytes=None)
    assert tight.context == 8192
    assert WEIGHTS + tight.cache_bytes + 5 * PER_LANE <= 10**9 < WEIGHTS + tight.cache_bytes + 5 * PER_LANE + page_bytes
    assert tight.prompt_pages == tight.pages, "what does not fit beside the lanes' pages lies in those not needed yet"


def test_a_cut_context_leaves_nothing_aside_for_prompts() -> None:
    plan, without = planned(20_000_000, prompt_cache_bytes=None), planned(20_000_000)
    assert plan.context == without.context < 8192
    assert plan.pages - without.pages <= 4 * 3
    assert plan.prompt_pages == plan.pages


@pytest.mark.parametrize("pages", [0, 1, 10])
def test_asked_room_for_prompts_is_given_beside_the_contexts(pages: int) -> None:
    page_bytes = PAGE_ROWS * PER_POSITION
    plan = planned(20_000_000, prompt_cache_bytes=pages * page_bytes + page_bytes // 2)
    assert plan.prompt_pages == pages
    assert plan.pages * PAGE_ROWS >= plan.lanes * plan.context + pages * PAGE_ROWS
    assert WEIGHTS + plan.cache_bytes + 5 * PER_LANE <= 20_000_000
    assert plan.context <= planned(20_000_000).context


def test_asked_room_for_prompts_that_does_not_fit_is_refused() -> None:
    with pytest.raises(DoesNotFit, match=r"1\.0 GiB of kept prompts.*--context, --parallel or --prompt-cache-gib"):
        planned(10**9, prompt_cache_bytes=bytes_of_gib(1.0))
    with pytest.raises(DoesNotFit, match=r"--context or --parallel$"):
        planned(10**9, weight_bytes=2 * 10**9)


def test_gib_are_bytes() -> None:
    assert [bytes_of_gib(size) for size in (None, 0, 0.5, 2.0)] == [None, 0, 2**29, 2**31]


def device(platform: str, stats: dict[str, int] | None) -> Any:
    return SimpleNamespace(platform=platform, memory_stats=lambda: stats)


def test_the_budget_is_a_share_of_the_devices_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1 << 20}.__getitem__)
    for platform, stats, wanted in (
        ("cpu", None, CPU_SHARE * 2**32),
        ("cpu", {"bytes_limit": 1}, CPU_SHARE * 2**32),
        ("gpu", {"bytes_limit": 2**37}, DEVICE_SHARE * 2**37),
        ("metal", None, CPU_SHARE * 2**32),
        ("mps", {}, CPU_SHARE * 2**32),
    ):
        monkeypatch.setattr(jax, "devices", lambda p=platform, s=stats: [device(p, s)])
        assert memory_budget() == int(wanted)


@pytest.mark.parametrize(("text", "limited"), [("1000000\n", True), ("max\n", False), ("9" * 30, False), ("", False)])
def test_a_container_limits_the_host_memory(tmp_path: Path, text: str, limited: bool) -> None:
    file = tmp_path / "memory.max"
    file.write_text(text)
    whole = host_memory(tmp_path / "missing")
    assert host_memory(file) == (1_000_000 if limited else whole)
    assert whole > 1_000_000
