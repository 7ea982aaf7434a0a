"""How many positions fit: the memory of weights, cache and tables against what the machine has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import jax

from tfjax.kernels.paged_attention import BLOCK_KEYS, PAGE_ROWS

CPU_SHARE = 0.70
DEVICE_SHARE = 0.85
LEAST_CONTEXT = BLOCK_KEYS
PROMPT_CACHE_BYTES = 1 << 30
"""Kept for prompts where nobody says otherwise and it fits."""


class DoesNotFit(ValueError):
    """The model and the smallest useful cache do not fit. The message names the sizes and the flags to change."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What was decided about memory.

    Attributes:
        context: most positions of one request.
        context_fitted: whether the context was cut to what fits.
        lanes: requests at once.
        pages: cache pages of all lanes and of kept prompts, without the scratch page.
        cache_bytes, weight_bytes, budget_bytes: sizes of what is planned.
        prompt_pages, prompt_cache_bytes: most pages that keep prompts which no request uses at the moment, and their
            size. Where they do not fit beside the lanes', they lie in pages that lanes do not need yet.
    """

    context: int
    context_fitted: bool
    lanes: int
    pages: int
    cache_bytes: int
    weight_bytes: int
    budget_bytes: int
    prompt_pages: int = 0
    prompt_cache_bytes: int = 0

    @property
    def pages_per_lane(self) -> int:
        """Columns of the page table: the context, rounded up to whole key blocks."""
        return -(-self.context // BLOCK_KEYS) * (BLOCK_KEYS // PAGE_ROWS)


def memory_budget() -> int:
    """Bytes that the server may use of the default device's memory (of the machine's on CPU)."""
    device = jax.devices()[0]
    limit = None if device.platform == "cpu" else (device.memory_stats() or {}).get("bytes_limit")
    return int(CPU_SHARE * host_memory()) if limit is None else int(DEVICE_SHARE * limit)


def host_memory(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Bytes of the machine's memory, or of the container's where it is limited to less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(cgroup.read_text()))
    except (OSError, ValueError):
        return machine  # no container, or no limit ("max")


def check_context(asked: int | None, model_context: int) -> None:
    """Refuse a --context over the model's.

    Raises:
        DoesNotFit: naming both.
    """
    if asked is not None and asked > model_context:
        raise DoesNotFit(
            f"--context {asked} is more than the {model_context} positions that the model was trained for; "
            f"give at most {model_context}"
        )


def plan_memory(
    *,
    model_context: int,
    asked: int | None,
    lanes: int,
    bytes_per_position: int,
    bytes_per_lane: int,
    weight_bytes: int,
    budget_bytes: int,
    prompt_cache_bytes: int | None = 0,
) -> MemoryPlan:
    """Give every lane the whole context where it fits; otherwise cut a context that nobody asked for.

    Kept prompts get what was asked for, or by default what the contexts leave.

    Args:
        model_context: positions that the model was trained for.
        asked: the user's --context, or None.
        bytes_per_position: cache of one position over all layers.
        bytes_per_lane: tables of one lane besides the cache.
        prompt_cache_bytes: the user's --prompt-cache-gib in bytes, or None.

    Raises:
        DoesNotFit: an asked context over the model's, or one that does not fit, or nothing fits.
    """
    check_context(asked, model_context)
    page_bytes = PAGE_ROWS * bytes_per_position
    left = budget_bytes - weight_bytes - (lanes + 1) * bytes_per_lane
    asked_pages = (prompt_cache_bytes or 0) // page_bytes
    fits = max(0, (left - asked_pages * page_bytes) // (lanes * bytes_per_position) - PAGE_ROWS)
    fits = fits // BLOCK_KEYS * BLOCK_KEYS
    wanted = asked or model_context
    context = min(wanted, fits)
    if context < wanted and (asked is not None or context < LEAST_CONTEXT):
        prompts = f" and {_gib(asked_pages * page_bytes)} of kept prompts" if asked_pages else ""
        remedy = "--context, --parallel or --prompt-cache-gib" if asked_pages else "--context or --parallel"
        raise DoesNotFit(
            f"{lanes} requests of {wanted} positions need {_gib(lanes * wanted * bytes_per_position)} of cache beside "
            f"{_gib(weight_bytes)} of weights{prompts}; the budget is {_gib(budget_bytes)}, "
            f"which holds {fits} positions each. Give a smaller {remedy}"
        )
    pages = lanes * -(-context // PAGE_ROWS)
    if prompt_cache_bytes is None:
        asked_pages = PROMPT_CACHE_BYTES // page_bytes
    pages += max(0, min(asked_pages, left // page_bytes - pages - 1))
    prompt_pages = min(asked_pages, pages)
    return MemoryPlan(
        context=context,
        context_fitted=context < wanted,
        lanes=lanes,
        pages=pages,
        cache_bytes=(pages + 1) * page_bytes,
        weight_bytes=weight_bytes,
        budget_bytes=budget_bytes,
        prompt_pages=prompt_pages,
        prompt_cache_bytes=prompt_pages * page_bytes,
    )


def bytes_of_gib(gib: float | None) -> int | None:
    """A setting in GiB as bytes; None stays None."""
    return None if gib is None else int(gib * 2**30)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
