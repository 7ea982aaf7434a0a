"""A drafter's checkpoint, checked against the target that it is to draft for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints import Checkpoint, CheckpointError, open_checkpoint
from tfjax.engine.drafters.draft_vocabulary import MAPS, read_draft_vocabulary
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.dspark_config import AS_STORED, DSparkOptions, fit_dspark
from tfjax.engine.drafters.dspark_reading import read_dspark
from tfjax.engine.memory import memory_budget
from tfjax.engine.table import vocabulary_hash
from tfjax.engine.weights import LoadedModel, Progress, read_model
from tfjax.models.config import ConfigError
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.family import Family
from tfjax.models.registry import drafter_family_for
from tfjax.models.small_drafter import SmallDrafterConfig
from tfjax.text.loading import load_tokenizer
from tfjax.text.pieces import UnsupportedTokenizer
from tfjax.text.same_tokens import first_difference
from tfjax.text.tokenizer import Tokenizer


class UnusableDrafter(ValueError):
    """A drafter that cannot draft for this target. The message says why, and what to give instead."""


def load_drafter(
    path: Path,
    target: LoadedModel,
    tokenizer: Tokenizer,
    dtype: str,
    depth: int,
    progress: Progress,
    *,
    dspark: DSparkOptions = AS_STORED,
) -> DraftingModel:
    """Read the drafter at `path`, which is to make up to `depth` drafts at a time for `target`.

    Raises:
        UnusableDrafter: naming what does not fit.
    """
    name = path.stem if path.is_file() else path.absolute().name
    try:
        checkpoint = open_checkpoint(path)
        family = drafter_family_for(checkpoint.architecture)
        config = family.config_from_hf(checkpoint.config)
        if isinstance(config, DSparkConfig):
            fitting = fit_dspark(checkpoint, config, target, tokenizer, dspark)
            _check_context(path, config.context, min(depth, config.block))
            _check_room(path, family, fitting.config, target)
            return read_dspark(name, family, fitting, target, tokenizer, dtype, progress)
        _check_context(path, config.context, depth)
        _check_room(path, family, config, target)
        if isinstance(config, SmallDrafterConfig):
            embedding = _embedding_for(path, config, target, tokenizer)
            ids = read_draft_vocabulary(checkpoint, config.draft_vocab, config.vocab)
        else:
            embedding = None
            ids = _common_ids(checkpoint, tokenizer, config.vocab, target.config.vocab)
        loaded = read_model(checkpoint, family, config, dtype, progress, beside=() if embedding is None else MAPS)
    except (CheckpointError, ConfigError, UnsupportedTokenizer) as error:
        raise UnusableDrafter(f"--drafter: {error}") from error
    return _joined(name, loaded, ids, target, embedding)


def _joined(
    name: str, loaded: LoadedModel, ids: NDArray[np.int32], target: LoadedModel, embedding: jax.Array | None
) -> DraftingModel:
    """Give the drafter what it shares with the target."""
    module: Any = loaded.module
    known = jnp.asarray(ids)
    if embedding is None:
        return DraftingModel(name, "model", loaded, known, target.config.vocab)
    module.join(embedding, known)
    return DraftingModel(name, "small", loaded, known, target.config.vocab, (embedding,))


def _check_context(path: Path, context: int, depth: int) -> None:
    least = depth + 2  # one token of context, the pending one, and the drafts
    if context < least:
        raise UnusableDrafter(
            f"--drafter: {path} was trained for {context} positions, fewer than the {least} that a window of "
            f"--drafter-depth {depth} needs; give a smaller depth or another drafter"
        )


def _check_room(path: Path, family: Family[Any], config: Any, target: LoadedModel) -> None:
    """Refuse weights that do not fit beside the target's before they are read."""
    parts = [part for parts in family.sources(config).values() for part in parts]
    needed = sum(math.prod(part.shape) for part in parts) * np.dtype(target.dtype).itemsize
    left = memory_budget() - target.weight_bytes
    if needed > left:
        raise UnusableDrafter(
            f"--drafter: {path} needs {needed / 2**30:.1f} GiB for its weights, and the model leaves "
            f"{max(0, left) / 2**30:.1f} GiB; give a smaller drafter or --drafter copy"
        )


def _embedding_for(path: Path, config: SmallDrafterConfig, target: LoadedModel, tokenizer: Tokenizer) -> jax.Array:
    """The target's embedding, which the drafter was trained to read."""
    module: Any = target.module
    embedding: jax.Array = module.embedding[...]
    if embedding.shape != (config.vocab, config.target_hidden):
        vocab, hidden = embedding.shape
        raise UnusableDrafter(
            f"--drafter: {path} was trained for a target with vocab_size {config.vocab} and hidden_size "
            f"{config.target_hidden}; this one has {vocab} and {hidden}. Give a drafter that was trained for it"
        )
    if config.vocabulary_sha256 is not None and config.vocabulary_sha256 != vocabulary_hash(tokenizer):
        raise UnusableDrafter(
            f"--drafter: {path} was trained with other tokens than the model's (vocabulary_sha256 "
            f"{config.vocabulary_sha256}). Give a drafter that was trained for this model"
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
