"""A drafter's checkpoint, checked against the target that it is to draft for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tfjax.checkpoints import Checkpoint, CheckpointError, open_checkpoint
from tfjax.engine.drafters.draft_vocabulary import MAPS, read_draft_vocabulary
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.weights import LoadedModel, Progress, read_model
from tfjax.models.config import ConfigError
from tfjax.models.registry import drafter_family_for
from tfjax.models.small_drafter import SmallDrafterConfig
from tfjax.text.loading import load_tokenizer
from tfjax.text.pieces import UnsupportedTokenizer
from tfjax.text.same_tokens import first_difference
from tfjax.text.tokenizer import Tokenizer


class UnusableDrafter(ValueError):
    """A drafter that cannot draft for this target. The message says why, and what to give instead."""


def load_drafter(
    path: Path, target: LoadedModel, tokenizer: Tokenizer, dtype: str, depth: int, progress: Progress
) -> DraftingModel:
    """Read the drafter at `path`, which is to make up to `depth` drafts at a time for `target`.

    Raises:
        UnusableDrafter: naming what does not fit.
    """
    try:
        checkpoint = open_checkpoint(path)
        family = drafter_family_for(checkpoint.architecture)
        config = family.config_from_hf(checkpoint.config)
        _check_context(path, config.context, depth)
        if isinstance(config, SmallDrafterConfig):
            shared = [_embedding_for(path, config, target)]
            ids = read_draft_vocabulary(checkpoint, config.draft_vocab, config.vocab)
        else:
            shared = []
            ids = _common_ids(checkpoint, tokenizer, config.vocab, target.config.vocab)
        loaded = read_model(checkpoint, family, config, dtype, progress, beside=MAPS if shared else ())
    except (CheckpointError, ConfigError, UnsupportedTokenizer) as error:
        raise UnusableDrafter(f"--drafter: {error}") from error
    return drafting_model(path.stem if path.is_file() else path.absolute().name, loaded, ids, target, shared)


def drafting_model(
    name: str, loaded: LoadedModel, ids: NDArray[np.int32], target: LoadedModel, shared: Sequence[jax.Array] = ()
) -> DraftingModel:
    """Join a drafter's own weights with what it shares with the target."""
    module: Any = loaded.module
    if shared:
        state = nnx.state(module)
        state["embedding"] = state["embedding"].replace(shared[0])
        nnx.update(module, state)
    kind = "small" if shared else "model"
    return DraftingModel(name, kind, replace(loaded, module=module), jnp.asarray(ids), target.config.vocab, shared)


def _check_context(path: Path, context: int, depth: int) -> None:
    least = depth + 2  # one token of context, the pending one, and the drafts
    if context < least:
        raise UnusableDrafter(
            f"--drafter: {path} was trained for {context} positions, fewer than the {least} that a window of "
            f"--drafter-depth {depth} needs; give a smaller depth or another drafter"
        )


def _embedding_for(path: Path, config: SmallDrafterConfig, target: LoadedModel) -> jax.Array:
    """The target's embedding, which the drafter was trained to read."""
    module: Any = target.module
    embedding: jax.Array = module.embedding[...]
    if embedding.shape != (config.vocab, config.target_hidden):
        vocab, hidden = embedding.shape
        raise UnusableDrafter(
            f"--drafter: {path} was trained for a target with vocab_size {config.vocab} and hidden_size "
            f"{config.target_hidden}; this one has {vocab} and {hidden}. Give a drafter that was trained for it"
        )
    return embedding


def _common_ids(checkpoint: Checkpoint, target: Tokenizer, rows: int, vocab: int) -> NDArray[np.int32]:
    """All tokens, once they are known to be the same; rows of the head that are only padding are left out."""
    own = load_tokenizer(checkpoint)
    different = first_difference(target, own)
    if different is not None:
        raise UnusableDrafter(
            f"--drafter: {checkpoint.path} has another vocabulary: token {different.token} is {different.other!r} "
            f"there and {different.one!r} in the model; give a drafter with the model's tokenizer"
        )
    return np.arange(min(own.vocab_size, rows, vocab), dtype=np.int32)
