"""From settings to a loaded model, and from a started backend to the loop's settings: steps that commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjax.checkpoints import Checkpoint, open_checkpoint
from tfjax.checkpoints.resolve import resolve_model
from tfjax.config import ServeConfig
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel, Progress, load_model
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.settings import Settings
from tfjax.text.loading import load_tokenizer
from tfjax.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Opened:
    """A model as the settings name it: where it lies, what it holds, and its parameters on the device."""

    path: Path
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    model: LoadedModel


def open_model(config: ServeConfig, progress: Progress) -> Opened:
    """Find the model, read its tokenizer, and load its weights.

    Raises:
        CheckpointError, ConfigError, DoesNotFit: with what to do about it.
    """
    progress("finding the model", 0.0)
    path = resolve_model(config.model, offline=config.offline, progress=progress)
    checkpoint = open_checkpoint(path)
    progress("reading the tokenizer", 0.0)
    tokenizer = load_tokenizer(checkpoint)
    model = load_model(
        checkpoint, config.dtype, progress, config.context, weights=config.weights, kernels=config.kernels
    )
    return Opened(path, checkpoint, tokenizer, model)


def loop_settings(target: TargetBackend, **changes: Any) -> Settings:
    """Settings of the lane loop that follow from the target and its memory, and `changes` by name."""
    memory = target.memory
    own = {"lanes": memory.lanes, "context": memory.context, "pages": memory.pages, "page_rows": PAGE_ROWS}
    return Settings(**{**own, "prompt_pages": memory.prompt_pages, "vocab_size": target.vocab, **changes})
