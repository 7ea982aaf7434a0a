"""Reads a DSpark drafter that fits, and gives it what it shares with its target."""

from __future__ import annotations

import logging
from typing import Any

import jax.numpy as jnp
import numpy as np

from tfjax.checkpoints import CheckpointError
from tfjax.engine.drafters.draft_vocabulary import OFFSETS, read_draft_vocabulary
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.dspark_config import FittingDSpark
from tfjax.engine.drafters.dspark_kernels import choose_dspark_kernels
from tfjax.engine.weights import DTYPES, LoadedModel, Progress, read_model
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.family import Family
from tfjax.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


def read_dspark(
    name: str,
    family: Family[DSparkConfig],
    fitting: FittingDSpark,
    target: LoadedModel,
    tokenizer: Tokenizer,
    dtype: str,
    progress: Progress,
) -> DraftingModel:
    """The drafter on the device, joined with its target.

    Raises:
        CheckpointError: a tensor that is missing, superfluous or of another shape, or a map of tokens that is wrong.
    """
    config = fitting.config
    ids = jnp.asarray(_draft_tokens(fitting, min(config.vocab, target.config.vocab), tokenizer.vocab_size))
    kernels = choose_dspark_kernels(family, config, DTYPES[dtype], target.kernels, target.config.vocab)
    log.info("kernels of %s: %s (%s)", name, kernels.route, kernels.reason)
    loaded = read_model(fitting.checkpoint, family, config, dtype, progress, beside=fitting.beside, kernels=kernels)
    module: Any = loaded.module
    own: Any = target.module
    module.join(own.embedding[...], own.head_weight, ids)
    shared = [] if config.own_embedding else [own.embedding[...]]
    if not config.own_head and config.draft_vocab == config.vocab:
        shared.append(own.head_weight)
    return DraftingModel(name, "dspark", loaded, ids, target.config.vocab, tuple(shared))


def _draft_tokens(fitting: FittingDSpark, vocab: int, tokens: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The target's token of each row of the head that can be drafted: of a whole vocabulary, all but the padding."""
    config = fitting.config
    if config.draft_vocab == config.vocab:
        return np.arange(min(tokens, vocab), dtype=np.int32)
    ids = read_draft_vocabulary(fitting.checkpoint, config.draft_vocab, config.vocab)
    if ids.max() >= vocab:
        raise CheckpointError(
            fitting.checkpoint.path,
            "a token outside the vocabulary",
            tensor=OFFSETS,
            found=f"token {ids.max()}",
            expected=f"0 to {vocab - 1}",
        )
    return ids
