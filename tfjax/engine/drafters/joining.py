"""A target and the drafter that was chosen for it, behind one backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from tfjax.checkpoints.cache import cache_home
from tfjax.config import ServeConfig
from tfjax.engine.drafters.choosing import Choice, draft_depth, without
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.drafters.loading import UnusableDrafter
from tfjax.engine.drafters.starting import start_drafter, start_dspark
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import Progress
from tfjax.lanes.backend import Backend
from tfjax.lanes.best_offer import BestOffer
from tfjax.lanes.copy_drafts import copies_for
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.drafter import Drafter
from tfjax.lanes.proposer import Proposer
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request
from tfjax.lanes.table_drafts import TableDrafts
from tfjax.models.dspark_config import DSparkConfig
from tfjax.setting_values import DRAFTER_AUTO, HELD_AUTO, HELD_ON


def add_drafter(
    config: ServeConfig, target: TargetBackend, choice: Choice, key: Sequence[str], progress: Progress
) -> tuple[Backend, Choice]:
    """Start the chosen drafter beside the target. `key` is what measured times depend on.

    Raises:
        UnusableDrafter: one that was named cannot be started.
    """
    if choice.model is None:
        return target, choice
    try:
        drafter = _start(config, target, choice.model, key, progress)
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        target.listener = target.held = None
        target.forget_drafts()
        reason = f"{choice.model.name} could not be started: {error}"
        if config.drafter != DRAFTER_AUTO:
            raise UnusableDrafter(f"--drafter: {reason}; give a smaller one or --drafter copy") from error
        return target, without(reason, choice.table)
    return Drafted(target, drafter, target.vocab), choice


def _start(
    config: ServeConfig, target: TargetBackend, model: DraftingModel, key: Sequence[str], progress: Progress
) -> Drafter:
    timings = cache_home() / "timings"
    if model.kind == "dspark":
        depth = draft_depth(config, model.loaded.config.block)
        held = None if config.held_drafts == HELD_AUTO else config.held_drafts == HELD_ON
        return start_dspark(model, target, depth, progress, timings=timings, key=key, held=held)
    return start_drafter(model, target.memory, target.plan, draft_depth(config), progress, timings=timings, key=key)


def describe_drafters(backend: Backend, choice: Choice, config: ServeConfig) -> dict[str, Any]:
    """What /capabilities says about drafting."""
    on_host = ["copy", "table"] if choice.table else ["copy"] if config.drafts else []
    policy = {"drafter_policy": {"policy": config.drafter_policy, "stands_aside": choice.aside}}
    if not isinstance(backend, Drafted) or choice.model is None:
        return policy | {"drafters": on_host, "drafter": {"name": None, "reason": choice.reason}}
    drafter, model = backend.drafter, choice.model
    return policy | {
        "drafters": [*on_host, model.kind],
        "drafter": {
            "name": model.name,
            "kind": model.kind,
            "depth": drafter.depth,
            "context": drafter.context,
            "draft_vocab": int(model.ids.size),
            "weight_bytes": model.weight_bytes,
            "hold_ms": {
                str(streams): {str(depth): round(ms, 2) for depth, ms in row.items()}
                for streams, row in drafter.hold_ms.items()
            },
        }
        | _describe_blocks(model, backend),
    }


def _describe_blocks(model: DraftingModel, backend: Drafted) -> dict[str, Any]:
    """What only a drafter that makes blocks has."""
    config, drafter = model.loaded.config, backend.drafter
    if not isinstance(config, DSparkConfig) or not isinstance(drafter, DSparkDrafter):
        return {}
    kernels = drafter.model.loaded.kernels  # Its own model: where kernels failed, another than was chosen.
    return {
        "kernels": {"route": str(kernels.route), "reason": kernels.reason},
        "block": config.block,
        "taps": list(config.taps),
        "qk_norm": config.qk_norm.value,
        "held_on_device": backend.held_on_target,
    }


def host_drafts(choice: Choice, settings: Settings, widest: int) -> Callable[[Request], Proposer] | None:
    """The source of one stream's drafts on the host where there is a table; None leaves copies alone."""
    table = choice.table
    if table is None:
        return None
    most = min(settings.draft_tokens, widest - 1)
    return lambda request: BestOffer([copies_for(settings.first_width, most, request), TableDrafts(table)])
