from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.exact_pair import DRAFTER, LENGTHS, MISLED, SAMPLINGS, TARGET, jobs_of, misled_drafter, unpacked
from tfjax.checkpoints import open_checkpoint

TOKENIZER: Any = SimpleNamespace(encode=lambda text: [ord(letter) for letter in text])


def test_every_length_comes_with_every_sampling() -> None:
    jobs = jobs_of(TOKENIZER, 21, 8, 4000)
    assert {(len(job.prompt), job.sampling) for job in jobs} == {(n, s) for n in LENGTHS for s in SAMPLINGS.values()}
    assert len({job.name for job in jobs}) == 21


def test_longest_prompts_are_cut_to_what_fits() -> None:
    assert max(len(job.prompt) for job in jobs_of(TOKENIZER, 9, 8, 500)) == 500


def test_an_unpacked_copy_has_the_same_numbers(tmp_path: Path) -> None:
    found, stored = open_checkpoint(unpacked(DRAFTER, tmp_path / "copy")), open_checkpoint(DRAFTER)
    assert found.tensors.infos.keys() == stored.tensors.infos.keys()
    assert {info.dtype for info in found.tensors.infos.values()} <= {"BF16", "F32"}
    for name in stored.tensors.infos:
        wanted = stored.tensors.read(name).astype(found.tensors.read(name).dtype)
        assert np.array_equal(found.tensors.read(name), wanted), name
    assert "quantization" not in json.loads((tmp_path / "copy" / "config.json").read_text("utf-8"))


def test_a_misled_head_has_other_rows_for_some_tokens(tmp_path: Path) -> None:
    head = open_checkpoint(misled_drafter(tmp_path / "misled")).tensors.read("lm_head.weight").astype(np.float32)
    right = open_checkpoint(TARGET).tensors.read("model.embed_tokens.weight").astype(head.dtype)
    moved = np.abs(head - right).max(1) > 0.01 * np.abs(right).max()
    assert 0.8 * len(head) // MISLED < moved.sum() <= len(head) // MISLED
