from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tfjax.checkpoints import Checkpoint, CheckpointError
from tfjax.engine.drafters.draft_vocabulary import read_draft_vocabulary

VOCAB = 10
IDS = [0, 3, 4, 9]


def checkpoint(**arrays: Any) -> Checkpoint:
    infos = {name: SimpleNamespace(shape=array.shape, file=Path("a.safetensors")) for name, array in arrays.items()}
    tensors: Any = SimpleNamespace(infos=infos, read=lambda name: arrays[name])
    nothing: Any = None
    return Checkpoint(Path("drafter"), "safetensors", "TfjaxSmallDrafter", {}, {}, tensors, nothing)


def offsets(ids: list[int]) -> Any:
    return np.array(ids, np.int64) - np.arange(len(ids))


def present(ids: list[int], vocab: int = VOCAB) -> Any:
    found = np.zeros(vocab, bool)
    found[ids] = True
    return found


def test_offsets_become_tokens() -> None:
    assert read_draft_vocabulary(checkpoint(d2t=offsets(IDS)), 4, VOCAB).tolist() == IDS
    assert read_draft_vocabulary(checkpoint(d2t=offsets(IDS), t2d=present(IDS)), 4, VOCAB).tolist() == IDS
    assert read_draft_vocabulary(checkpoint(d2t=offsets([9, 0])), 2, VOCAB).dtype == np.int32
    assert read_draft_vocabulary(checkpoint(d2t=offsets([9, 0])), 2, VOCAB).tolist() == [9, 0]


def test_a_whole_vocabulary_needs_no_map() -> None:
    assert read_draft_vocabulary(checkpoint(), VOCAB, VOCAB).tolist() == list(range(VOCAB))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, r"drafter: the map of the draft vocabulary is missing; tensor d2t; expected \[4\]"),
        ({"d2t": offsets([0, 1, 2])}, r"wrong shape; tensor d2t; found \(3,\); expected \(4,\)"),
        ({"d2t": offsets([0, 3, 4, 10])}, r"outside the vocabulary; .*found token 10 for draft id 3; expected 0 to 9"),
        ({"d2t": offsets([-1, 3, 4, 9])}, "found token -1 for draft id 0"),
        ({"d2t": offsets([0, 3, 3, 9])}, "a token is repeated; .*found token 3 2 times"),
        ({"d2t": offsets(IDS), "t2d": present(IDS, 12)}, r"wrong shape; tensor t2d; found \(12,\)"),
        ({"d2t": offsets(IDS), "t2d": present([0, 3, 9])}, "d2t and t2d disagree; .*token 4 in one"),
        ({"d2t": offsets(IDS), "t2d": present([*IDS, 7])}, "d2t and t2d disagree; .*token 7 in one"),
    ],
)
def test_a_map_that_cannot_be_used(arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read_draft_vocabulary(checkpoint(**arrays), 4, VOCAB)
