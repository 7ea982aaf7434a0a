"""Which tokens a drafter's head knows: the map of a reduced vocabulary, as published drafters store it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints import Checkpoint, CheckpointError

OFFSETS = "d2t"
"""int64 [draft V]: a draft id's token is the draft id plus this. Source: the EAGLE-3 checkpoints."""

PRESENT = "t2d"
"""bool [V], optional: which tokens a draft id stands for."""

MAPS = (OFFSETS, PRESENT)


def read_draft_vocabulary(checkpoint: Checkpoint, draft_vocab: int, vocab: int) -> NDArray[np.int32]:
    """The target's token of each row of the head. Shape: [draft_vocab].

    Raises:
        CheckpointError: a map that is missing, has another shape, leaves the vocabulary, repeats a token or does not
            agree with the other one.
    """
    infos = checkpoint.tensors.infos
    if OFFSETS not in infos:
        if draft_vocab == vocab:
            return np.arange(vocab, dtype=np.int32)
        raise CheckpointError(
            checkpoint.path, "the map of the draft vocabulary is missing", tensor=OFFSETS, expected=f"[{draft_vocab}]"
        )
    file = infos[OFFSETS].file
    if infos[OFFSETS].shape != (draft_vocab,):
        raise CheckpointError(file, "wrong shape", tensor=OFFSETS, found=infos[OFFSETS].shape, expected=(draft_vocab,))
    ids: NDArray[np.int64] = np.arange(draft_vocab) + checkpoint.tensors.read(OFFSETS)
    outside = np.flatnonzero((ids < 0) | (ids >= vocab))
    if outside.size:
        found = f"token {ids[outside[0]]} for draft id {outside[0]}"
        raise CheckpointError(
            file, "a token outside the vocabulary", tensor=OFFSETS, found=found, expected=f"0 to {vocab - 1}"
        )
    tokens, count = np.unique(ids, return_counts=True)
    if tokens.size < draft_vocab:
        found = f"token {tokens[count > 1][0]} {count.max()} times"
        raise CheckpointError(file, "a token is repeated", tensor=OFFSETS, found=found, expected="each token once")
    if PRESENT in infos:
        _check_present(checkpoint, ids, vocab)
    return ids.astype(np.int32)


def _check_present(checkpoint: Checkpoint, ids: NDArray[np.int64], vocab: int) -> None:
    info = checkpoint.tensors.infos[PRESENT]
    if info.shape != (vocab,):
        raise CheckpointError(info.file, "wrong shape", tensor=PRESENT, found=info.shape, expected=(vocab,))
    present = np.zeros(vocab, bool)
    present[ids] = True
    wrong = np.flatnonzero(present != checkpoint.tensors.read(PRESENT))
    if wrong.size:
        found = f"token {wrong[0]} in one and not in the other"
        raise CheckpointError(
            info.file, f"{OFFSETS} and {PRESENT} disagree", tensor=PRESENT, found=found, expected="the same tokens"
        )
