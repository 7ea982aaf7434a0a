"""What a run starts from: target and replies read and compared, rows packed, shapes decided."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints import Checkpoint, open_checkpoint
from tfjax.checkpoints.resolve import resolve_model
from tfjax.engine.load import model_id
from tfjax.engine.table import vocabulary_hash
from tfjax.models.llama import LlamaConfig
from tfjax.text.loading import load_tokenizer
from tfjax.train.shards import HUMAN_EVAL, answers_problems, check_learnable, read_recipe
from tfjax.train.small_config import SmallConfig, check_size
from tfjax.train.small_data import (
    Document,
    Ints,
    Packed,
    check_recipe,
    coverage,
    draft_vocabulary,
    pack,
    read_documents,
)
from tfjax.train.small_settings import Settings
from tfjax.train.small_target import read_embedding, target_config


@dataclass(frozen=True, slots=True)
class Material:
    """All that training reads.

    Attributes:
        target: the target's shapes.
        embedding: of the target. Shape: [V, D].
        config: the drafter's shapes.
        draft_ids: tokens that can be drafted, in rising order.
        rows: replies to learn from, packed.
        measured: name -> replies to measure acceptance on.
        counts: how many replies and tokens are learned, and under `recipes` what they were made from.
    """

    checkpoint: Checkpoint
    target: LlamaConfig
    embedding: NDArray[Any]
    config: SmallConfig
    draft_ids: Ints
    rows: Packed
    measured: dict[str, list[Document]]
    counts: dict[str, Any]

    def steps(self, settings: Settings) -> int:
        """Steps of the asked epochs, up to a whole number of dispatches."""
        exact = settings.epochs * len(self.rows.token) / settings.batch
        return math.ceil(max(1.0, exact) / settings.steps_per_call) * settings.steps_per_call


def gather(settings: Settings, progress: Callable[[str, float], None]) -> Material:
    """Read everything and check that it goes together, the cheap checks first.

    Raises:
        ValueError: no replies, replies of another model, or a drafter that would be too large.
        CheckpointError, ConfigError: a target that cannot be used.
    """
    recipes = {directory: read_recipe(directory) for directory in (*settings.replies, *settings.measure)}
    for directory in settings.replies:
        check_learnable(directory, recipes[directory], "--measure")
    progress("finding the target", 0.0)
    path = resolve_model(settings.model, offline=False, progress=progress)
    checkpoint = open_checkpoint(path)
    target = target_config(checkpoint)
    vocabulary = vocabulary_hash(load_tokenizer(checkpoint))
    config = small_config(settings, target, vocabulary)
    check_size(config, settings.max_mib)
    for directory, recipe in recipes.items():
        check_recipe(directory, recipe, model=model_id(path), vocabulary=vocabulary)
    progress("reading replies", 0.0)
    documents = [document for directory in settings.replies for document in read_documents(directory)]
    learned = [document for document in documents if not document.held_out]
    if not learned:
        where = ", ".join(map(str, settings.replies))
        raise ValueError(f"all {len(documents)} replies of {where} are held out; write more of them")
    draft_ids = draft_vocabulary(learned, target.vocab, config.draft_vocab)
    measured = {"held-out replies": [document for document in documents if document.held_out]}
    measured |= {_name(directory, recipes[directory]): read_documents(directory) for directory in settings.measure}
    counts = {
        "replies": len(learned),
        "reply_tokens": sum(len(document.reply) for document in learned),
        "prompt_tokens": sum(document.reply_start for document in learned),
        "draft_vocab_coverage": round(coverage(learned, draft_ids), 5),
    }
    return Material(
        checkpoint=checkpoint,
        target=target,
        embedding=read_embedding(checkpoint),
        config=config,
        draft_ids=draft_ids,
        rows=pack(learned, settings.length),
        measured={name: found for name, found in measured.items() if found},
        counts={"recipes": [recipes[directory] for directory in settings.replies], **counts},
    )


def small_config(settings: Settings, target: LlamaConfig, vocabulary: str) -> SmallConfig:
    """The drafter's shapes: as asked, with the target's rotation, epsilon and context."""
    return SmallConfig(
        vocab=target.vocab,
        target_hidden=target.hidden,
        draft_vocab=min(settings.draft_vocab or target.vocab, target.vocab),
        projected_head=settings.head == "projected",
        hidden=settings.hidden,
        inner=settings.inner,
        layers=settings.layers,
        heads=settings.heads,
        kv_heads=settings.kv_heads,
        head_dim=settings.hidden // settings.heads,
        norm_eps=target.norm_eps,
        rope_theta=target.rope.theta,
        context=target.context,
        vocabulary_sha256=vocabulary,
    )


def fingerprint(rows: Iterable[NDArray[Any]]) -> str:
    """Hash of the packed rows: a resumed run has to see the same ones."""
    import hashlib

    digest = hashlib.sha256()
    for part in rows:
        digest.update(np.ascontiguousarray(part))
    return digest.hexdigest()[:16]


def _name(directory: Path, recipe: dict[str, Any]) -> str:
    return HUMAN_EVAL if answers_problems(recipe) else directory.name
