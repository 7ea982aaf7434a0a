"""What drafts beside copies: what --drafter says, held against what is there and fits."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import jax

from tfjax.checkpoints import CheckpointError, open_checkpoint
from tfjax.config import ServeConfig
from tfjax.engine.drafters.assets import ASSETS, is_dspark, made_for
from tfjax.engine.drafters.device_policy import why_not
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.dspark_config import DSparkOptions
from tfjax.engine.drafters.loading import UnusableDrafter, load_drafter
from tfjax.engine.table import TableError, load_table
from tfjax.engine.weights import LoadedModel, Progress
from tfjax.lanes.table_drafts import Table
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.config import ConfigError
from tfjax.setting_values import DRAFTER_AUTO, DRAFTER_COPY, DRAFTER_TABLE, QK_NORM_CONFIG
from tfjax.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

NONE_FITS = "none of those that come with tfjax is for this model"

SMALL_DEPTH = 8
"""Drafts of a small model, each of which takes a forward of its own."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What drafts beside copies.

    Attributes:
        model: the drafting model, if any.
        reason: why there is none.
        table: frequent continuations, if any.
        aside: why a DSpark drafter that is there was not loaded, if that is so.
    """

    model: DraftingModel | None
    reason: str | None = None
    table: Table | None = None
    aside: str | None = None


def choose_drafter(
    config: ServeConfig, target: LoadedModel, tokenizer: Tokenizer, progress: Progress, assets: Path = ASSETS
) -> Choice:
    """Load what --drafter names. With `auto` a drafter that cannot be used is only warned of.

    Raises:
        UnusableDrafter: one that was named cannot be used.
    """
    if not config.drafts:
        return Choice(None, "drafts are off")
    if config.drafter == DRAFTER_AUTO:
        return _found(config, target, tokenizer, progress, assets)
    without_model = f"--drafter {config.drafter} drafts without a small model"
    if config.drafter == DRAFTER_COPY:
        return Choice(None, without_model)
    if config.drafter == DRAFTER_TABLE:
        return Choice(None, without_model, _table_for(tokenizer, assets, required=True))
    path = Path(config.drafter).expanduser()
    if path.suffix == ".safetensors":
        return Choice(None, without_model, _named_table(path, tokenizer))
    try:
        aside = _aside(config) if is_dspark(open_checkpoint(path).architecture) else None
    except CheckpointError as error:
        raise UnusableDrafter(f"--drafter: {error}") from error
    return Choice(None, aside, aside=aside) if aside else Choice(_load(path, config, target, tokenizer, progress))


def _aside(config: ServeConfig) -> str | None:
    """Why no DSpark drafter is loaded on this device; that is said once."""
    device = jax.devices()[0]
    why = why_not(config.drafter_policy, device)
    if why is None:
        return None
    said = f"DSpark standing aside on {device.device_kind}"
    log.warning(said)
    return f"{said}: {why}"


def _load(
    path: Path, config: ServeConfig, target: LoadedModel, tokenizer: Tokenizer, progress: Progress
) -> DraftingModel:
    order = None if config.drafter_qk_norm == QK_NORM_CONFIG else QKNorm(config.drafter_qk_norm)
    options = DSparkOptions(config.drafter_bits, order)
    return load_drafter(path, target, tokenizer, config.dtype, draft_depth(config), progress, dspark=options)


def _found(config: ServeConfig, target: LoadedModel, tokenizer: Tokenizer, progress: Progress, assets: Path) -> Choice:
    """All that comes with tfjax for this model."""
    table, aside = _table_for(tokenizer, assets, required=False), None
    try:
        paths = made_for(target, assets)
        if any(paths.values()):
            aside = _aside(config)
        path = next((path for path, blocks in paths.items() if not (blocks and aside)), None)
        if path is not None:
            return Choice(_load(path, config, target, tokenizer, progress), table=table, aside=aside)
    except (UnusableDrafter, CheckpointError, ConfigError) as error:
        return without(str(error), table)
    return Choice(None, aside, table, aside) if aside else without(NONE_FITS, table)


def draft_depth(config: ServeConfig, usual: int = SMALL_DEPTH) -> int:
    """Most drafts of one hold, `usual` where nobody says how many."""
    return min(config.drafter_depth or usual, config.draft_tokens)


def without(reason: str, table: Table | None = None) -> Choice:
    """Go on without a small model, and say so."""
    log.warning("no small model drafts: %s", reason)
    return Choice(None, reason, table)


def _named_table(path: Path, tokenizer: Tokenizer) -> Table:
    try:
        return load_table(path, tokenizer)
    except TableError as error:
        raise UnusableDrafter(f"--drafter: {error}") from error


def _table_for(tokenizer: Tokenizer, assets: Path, *, required: bool) -> Table | None:
    """The first table for this vocabulary among those that come with tfjax."""
    reasons = []
    for file in sorted(assets.glob("*.safetensors")):
        try:
            return load_table(file, tokenizer)
        except TableError as error:
            reasons.append(str(error))
    if required:
        why = "; ".join(reasons) or "tfjax comes with none"
        raise UnusableDrafter(f"--drafter table: {why}. Give a table's file, or --drafter copy")
    return None
