"""How much memory the model, its drafter, the cache and kept prompts get."""

from __future__ import annotations

from tfjax.config import ServeConfig
from tfjax.engine.drafters.choosing import Choice, without
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.lane_tables import bytes_per_lane
from tfjax.engine.memory import DoesNotFit, MemoryPlan, bytes_of_gib, memory_budget, plan_memory
from tfjax.engine.weights import LoadedModel
from tfjax.setting_values import DRAFTER_AUTO


def fit_memory(
    model: LoadedModel,
    *,
    asked: int | None,
    lanes: int,
    prompt_cache_bytes: int | None = 0,
    drafter: DraftingModel | None = None,
) -> MemoryPlan:
    """Plan cache and tables for `lanes` requests, and kept prompts, in what weights and their expansion leave."""
    context = model.config.context
    position_bytes = model.family.cache_bytes_per_position(model.config, model.dtype)
    own_bytes = model.family.cache_bytes_per_lane(model.config, model.dtype)
    table_bytes = bytes_per_lane(model.config.vocab, asked or context)
    return plan_memory(
        model_context=context,
        asked=asked,
        lanes=lanes,
        bytes_per_position=position_bytes + (drafter.cache_bytes_per_position if drafter else 0),
        bytes_per_lane=own_bytes + table_bytes + _drafter_lane_bytes(drafter, table_bytes),
        weight_bytes=model.weight_bytes + (drafter.weight_bytes if drafter else 0),
        budget_bytes=memory_budget() - model.expansion_bytes,
        prompt_cache_bytes=prompt_cache_bytes,
    )


def _drafter_lane_bytes(drafter: DraftingModel | None, table_bytes: int) -> int:
    """One that reads the target's features reads its tables too; others have their own."""
    if drafter is None:
        return 0
    return drafter.cache_bytes_per_lane + (0 if drafter.taps else table_bytes)


def fit_both(config: ServeConfig, model: LoadedModel, choice: Choice) -> tuple[MemoryPlan, Choice]:
    """Plan memory for model and drafter. A drafter that nobody named gives way where there is no room for it.

    Raises:
        DoesNotFit: naming sizes and flags.
    """

    def planned(drafter: DraftingModel | None) -> MemoryPlan:
        return fit_memory(
            model,
            asked=config.context,
            lanes=config.parallel,
            prompt_cache_bytes=bytes_of_gib(config.prompt_cache_gib),
            drafter=drafter,
        )

    try:
        return planned(choice.model), choice
    except DoesNotFit as error:
        if choice.model is None:
            raise
        if config.drafter != DRAFTER_AUTO:
            raise DoesNotFit(f"{error}, or leave out --drafter {config.drafter}") from error
        choice = without(f"there is no room for {choice.model.name}: {error}", choice.table)
    return planned(None), choice
