"""The pair that comes with tfjax, its weights in other forms, and prompts of given lengths."""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import queue
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tfjax import quantize
from tfjax.checkpoints import open_checkpoint
from tfjax.checkpoints.mlx_config import KEYS
from tfjax.checkpoints.safetensors_files import SINGLE
from tfjax.checkpoints.safetensors_writer import Layout, SafetensorsWriter
from tfjax.engine.api import Sampling
from tfjax.engine.drafters.assets import ASSETS
from tfjax.text.tokenizer import Tokenizer

TARGET, DRAFTER = ASSETS / "lfm2-moe-code", ASSETS / "lfm2-moe-code-dspark"
LENGTHS = (65, 1, 64, 1000, 3, 4000, 2)
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "T 0.8, top-p 0.9": Sampling(temperature=0.8, top_p=0.9, seed=20_261_129),
    "T 1.0, top-p 0.9": Sampling(temperature=1.0, top_p=0.9, seed=3_141_592_653_589),
}
MISLED = 5
"""One token in so many has another's row in the misled drafter's head, so that it misses at every depth."""


@dataclass(frozen=True, slots=True)
class Job:
    """A reply that is to be made."""

    name: str
    prompt: tuple[int, ...]
    tokens: int
    sampling: Sampling


def code_tokens(tokenizer: Tokenizer, least: int) -> list[int]:
    """More than `least` tokens of Python's own library."""
    text: list[int] = []
    for module in itertools.cycle((argparse, csv, queue, json, shutil)):
        text += tokenizer.encode(Path(str(module.__file__)).read_text("utf-8"))
        if len(text) > least:
            break
    return text


def jobs_of(tokenizer: Tokenizer, count: int, tokens: int, longest: int) -> list[Job]:
    """Prompts of all lengths up to `longest`, each at a place of its own in real code, the samplings in turn."""
    text = code_tokens(tokenizer, longest + 64 * count)
    lengths = dict.fromkeys(min(length, longest) for length in LENGTHS)
    found = []
    for number, length, name in zip(range(count), itertools.cycle(lengths), itertools.cycle(SAMPLINGS), strict=False):
        start = 61 * number
        prompt = tuple(text[start : start + length])
        found.append(Job(f"{number}: {length} tokens, {name}", prompt, tokens, SAMPLINGS[name]))
    return found


def unpacked(source: Path, target: Path, more: Mapping[str, NDArray[Any]] | None = None) -> Path:
    """A copy of a directory whose quantized weights stand there in bfloat16, and with `more` tensors."""
    checkpoint = open_checkpoint(source)
    target.mkdir()
    for file in source.glob("*.json"):
        shutil.copyfile(file, target / file.name)
    config = json.loads((source / "config.json").read_text("utf-8"))
    stated = {key: value for key, value in config.items() if key not in KEYS}
    (target / "config.json").write_text(json.dumps(stated, indent=2), "utf-8")
    tensors = checkpoint.tensors
    kinds = {name: "F32" if info.dtype == "F32" else "BF16" for name, info in tensors.infos.items()}
    layouts = {name: Layout(kind, tensors.infos[name].shape) for name, kind in kinds.items()}
    layouts |= {name: Layout("BF16", values.shape) for name, values in (more or {}).items()}
    with SafetensorsWriter(target / SINGLE, layouts, {}) as writer:
        for name, kind in kinds.items():
            dtype = np.float32 if kind == "F32" else ml_dtypes.bfloat16
            writer.write(name, tensors.read(name).astype(dtype))
        for name, values in (more or {}).items():
            writer.write(name, values.astype(ml_dtypes.bfloat16))
    return target


def misled_drafter(target: Path) -> Path:
    """The drafter with a head of its own: the target's, in which some tokens' rows have changed places."""
    head = open_checkpoint(TARGET).tensors.read("model.embed_tokens.weight").copy()
    random = np.random.default_rng(0)
    moved = random.choice(len(head), len(head) // MISLED, replace=False)
    head[moved] = head[np.roll(moved, 1)]
    return unpacked(DRAFTER, target, {"lm_head.weight": head})


def four_bit_target(folder: Path) -> Path:
    """The target with 4 bits a weight, by `tfjax quantize`.

    Raises:
        RuntimeError: it could not be written.
    """
    whole, packed = unpacked(TARGET, folder / "bfloat16"), folder / TARGET.name
    code = quantize.main([str(whole), str(packed), "--bits", "4", "--offline"])
    if code:
        raise RuntimeError(f"tfjax quantize ended with {code}")
    return packed
