"""What drafts beside copies: what --drafter says, held against what is there and fits."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from tfjax.checkpoints import CheckpointError, open_checkpoint
from tfjax.config import DRAFTER_AUTO, DRAFTER_COPY, DRAFTER_TABLE, ServeConfig
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.loading import UnusableDrafter, load_drafter
from tfjax.engine.table import TableError, load_table
from tfjax.engine.weights import LoadedModel, Progress
from tfjax.lanes.table_drafts import Table
from tfjax.models.small_drafter import FAMILY
from tfjax.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

ASSETS = Path(__file__).parents[2] / "assets"
"""Where the drafters that come with tfjax lie, one directory each."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What drafts beside copies.

    Attributes:
        model: the small model, if any.
        reason: why there is none.
        table: frequent continuations, if any.
    """

    model: DraftingModel | None
    reason: str | None = None
    table: Table | None = None


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
    return Choice(load_drafter(path, target, tokenizer, config.dtype, draft_depth(config), progress))


def _found(config: ServeConfig, target: LoadedModel, tokenizer: Tokenizer, progress: Progress, assets: Path) -> Choice:
    """All that comes with tfjax for this model."""
    table = _table_for(tokenizer, assets, required=False)
    try:
        path = _made_for(target, assets)
        if path is not None:
            model = load_drafter(path, target, tokenizer, config.dtype, draft_depth(config), progress)
            return Choice(model, table=table)
    except (UnusableDrafter, CheckpointError) as error:
        return without(str(error), table)
    return without("none of those that come with tfjax is for this model", table)


def draft_depth(config: ServeConfig) -> int:
    """Most drafts of one hold."""
    return min(config.drafter_depth, config.draft_tokens)


def without(reason: str, table: Table | None = None) -> Choice:
    """Go on without a small model, and say so."""
    log.warning("no small model drafts: %s", reason)
    return Choice(None, reason, table)


def _made_for(target: LoadedModel, assets: Path) -> Path | None:
    """The first drafter for a target of this shape."""
    for file in sorted(assets.glob("*/config.json")):
        checkpoint = open_checkpoint(file.parent)
        hidden = checkpoint.config.get("target_hidden_size")
        shape = (checkpoint.config["vocab_size"], hidden)
        if checkpoint.architecture == FAMILY.architecture and shape == (target.config.vocab, target.config.hidden):
            return file.parent
    return None


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
