"""The drafters that come with tfjax."""

from __future__ import annotations

from pathlib import Path

from tfjax.checkpoints import Checkpoint, open_checkpoint
from tfjax.engine.weights import LoadedModel
from tfjax.models import dspark, registry, small_drafter
from tfjax.models.dspark_config import DSparkConfig

ASSETS = Path(__file__).parents[2] / "assets"
"""Where they lie, one directory each."""


def is_dspark(architecture: str) -> bool:
    """Whether a drafter of this architecture makes blocks of the target's features."""
    return registry.DRAFTERS.get(architecture) == dspark.__name__


def made_for(target: LoadedModel, assets: Path = ASSETS) -> dict[Path, bool]:
    """Drafters for a target of this shape, those that make blocks first, and whether they do.

    Raises:
        CheckpointError, ConfigError: one that cannot be read.
    """
    found = {}
    for file in sorted(assets.glob("*/config.json")):
        checkpoint = open_checkpoint(file.parent)
        blocks = is_dspark(checkpoint.architecture)
        if (_is_blocks_for if blocks else _is_small_for)(checkpoint, target):
            found[file.parent] = blocks
    return dict(sorted(found.items(), key=lambda item: not item[1]))


def _is_small_for(checkpoint: Checkpoint, target: LoadedModel) -> bool:
    shape = (checkpoint.config["vocab_size"], checkpoint.config.get("target_hidden_size"))
    architecture = small_drafter.FAMILY.architecture
    return checkpoint.architecture == architecture and shape == (target.config.vocab, target.config.hidden)


def _is_blocks_for(checkpoint: Checkpoint, target: LoadedModel) -> bool:
    config = DSparkConfig.from_hf(checkpoint.config)
    shape = (config.vocab, config.target_hidden, config.target_layers)
    return shape == (target.config.vocab, target.config.hidden, target.config.layers)
