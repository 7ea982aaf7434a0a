"""Which small model drafts: what --drafter says, held against what is there and fits."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from tfjax.checkpoints import CheckpointError, open_checkpoint
from tfjax.config import DRAFTER_AUTO, DRAFTER_COPY, ServeConfig
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.loading import UnusableDrafter, load_drafter
from tfjax.engine.weights import LoadedModel, Progress
from tfjax.models.small_drafter import FAMILY
from tfjax.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

ASSETS = Path(__file__).parents[2] / "assets"
"""Where the drafters that come with tfjax lie, one directory each."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The small model that drafts, or why there is none."""

    model: DraftingModel | None
    reason: str | None = None


def choose_drafter(
    config: ServeConfig, target: LoadedModel, tokenizer: Tokenizer, progress: Progress, assets: Path = ASSETS
) -> Choice:
    """Load what --drafter names. With `auto` a drafter that cannot be used is only warned of.

    Raises:
        UnusableDrafter: one that was named cannot be used.
    """
    if not config.drafts:
        return Choice(None, "drafts are off")
    if config.drafter == DRAFTER_COPY:
        return Choice(None, "--drafter copy drafts without a small model")
    depth = draft_depth(config)
    if config.drafter != DRAFTER_AUTO:
        path = Path(config.drafter).expanduser()
        return Choice(load_drafter(path, target, tokenizer, config.dtype, depth, progress))
    try:
        found = _made_for(target, assets)
        if found is not None:
            return Choice(load_drafter(found, target, tokenizer, config.dtype, depth, progress))
    except (UnusableDrafter, CheckpointError) as error:
        return without(str(error))
    return without("none of the drafters that come with tfjax is for this model")


def draft_depth(config: ServeConfig) -> int:
    """Most drafts of one hold."""
    return min(config.drafter_depth, config.draft_tokens)


def without(reason: str) -> Choice:
    """Go on with copied drafts only, and say so."""
    log.warning("no small model drafts: %s", reason)
    return Choice(None, reason)


def _made_for(target: LoadedModel, assets: Path) -> Path | None:
    """The first drafter for a target of this shape."""
    for file in sorted(assets.glob("*/config.json")):
        checkpoint = open_checkpoint(file.parent)
        hidden = checkpoint.config.get("target_hidden_size")
        shape = (checkpoint.config["vocab_size"], hidden)
        if checkpoint.architecture == FAMILY.architecture and shape == (target.config.vocab, target.config.hidden):
            return file.parent
    return None
