"""A published DSpark drafter that training goes on from, as `--start-from` names it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints import Checkpoint, CheckpointError, open_checkpoint
from tfjax.engine.drafters.draft_vocabulary import read_draft_vocabulary
from tfjax.engine.drafters.dspark_tensors import Unprefixed
from tfjax.models.config import ConfigError
from tfjax.models.dspark_config import DSparkConfig
from tfjax.train.dspark_dense import Params
from tfjax.train.dspark_files import MODEL
from tfjax.train.dspark_model import from_published
from tfjax.train.record import RECORD
from tfjax.train.small_data import Ints
from tfjax.train.small_settings import option

FLAG = "--start-from"

ASKED: Mapping[str, str] = {
    "layers": "layers",
    "inner": "inner",
    "taps": "taps",
    "qk_norm": "qk_norm_order",
    "interleaved": "rope",
    "draft_vocab": "draft_vocab",
    "markov": "markov_head",
    "markov_rank": "markov_rank",
    "mask_token": "mask_token",
}
"""Field of the config -> setting that decides it."""

GIVEN = ("hidden", "target_hidden", "heads", "kv_heads", "head_dim", "vocab", "rope", "norm_eps", "vocabulary_sha256")
"""Fields that the target decides."""

UNTRAINED = {"confidence": True, "confidence_with_markov": True, "anchor_first": True}
"""Fields with the only value that is trained here. The block may be another one: no tensor depends on it."""


@dataclass(frozen=True, slots=True)
class Start:
    """A drafter to go on from.

    Attributes:
        params: float32.
        draft_ids: tokens that it can draft, in rising order. Shape: [C].
        sha256: of its model.safetensors.
        steps: that its own record tells, those before included; None without a record.
    """

    params: Params
    draft_ids: Ints
    sha256: str
    steps: int | None

    def as_json(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "steps": self.steps}


def read_start(path: Path, config: DSparkConfig) -> Start:
    """Read a drafter's directory or its model.safetensors, in bfloat16 or 8 bits.

    Args:
        config: of the drafter that is to be trained.

    Raises:
        ValueError: it is no DSpark drafter, or has other shapes or another target than `config`; names flag and values.
    """
    directory = path.parent if path.name == MODEL else path
    file = directory / MODEL
    if not file.is_file():
        raise ValueError(
            f"{FLAG}: {path} is no directory with {MODEL}, nor that file; give what `tfjax train dspark` wrote"
        )
    try:
        checkpoint = open_checkpoint(directory)
        found = DSparkConfig.from_hf(checkpoint.config)
        check_same(path, found, config)
        params = _params(path, checkpoint, config)
        ids = _draft_ids(checkpoint, config)
    except (CheckpointError, ConfigError, KeyError, TypeError) as error:
        raise ValueError(f"{FLAG}: {error}") from error
    return Start(params, ids, hashlib.sha256(file.read_bytes()).hexdigest(), _steps(directory / RECORD))


def check_same(path: Path, found: DSparkConfig, wanted: DSparkConfig) -> None:
    """Raises ValueError where the drafter's config differs in what training keeps; names the flag that mends it."""
    for field, name in ASKED.items():
        has, asked = getattr(found, field), getattr(wanted, field)
        if has != asked:
            raise ValueError(
                f"{FLAG}: {path} has {option(name)} {_said(field, has)}, and this run {_said(field, asked)}; give "
                f"{option(name)} {_said(field, has)}"
            )
    for field in GIVEN:
        has, asked = getattr(found, field), getattr(wanted, field)
        if has != asked and not (field == "vocabulary_sha256" and has is None):
            raise ValueError(
                f"{FLAG}: {path} drafts for a target with {field} {has}, and this one has {asked}; give a drafter that "
                "was trained for this --model"
            )
    for field, only in UNTRAINED.items():
        if getattr(found, field) != only:
            raise ValueError(
                f"{FLAG}: {path} has {field} {getattr(found, field)}, and training needs {only}; give another drafter"
            )


def _said(field: str, value: Any) -> str:
    """A config's value as its flag takes it."""
    if field == "interleaved":
        return "interleaved" if value else "half-split"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) + ("," if len(value) == 1 else "")
    return str(getattr(value, "value", value))


def _params(path: Path, checkpoint: Checkpoint, config: DSparkConfig) -> Params:
    tensors = Unprefixed(checkpoint)

    def read(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        value = np.asarray(tensors.read(name)).astype(np.float32)
        if value.shape != shape:
            raise ValueError(
                f"{FLAG}: {path} has {name} of shape {value.shape}, and {shape} is trained; give another drafter"
            )
        if not np.isfinite(value).all():
            raise ValueError(f"{FLAG}: {path} has values in {name} that are not finite; give another drafter")
        return value

    params: Params = jax.tree.map(jnp.asarray, from_published(read, config))
    return params


def _draft_ids(checkpoint: Checkpoint, config: DSparkConfig) -> Ints:
    if config.draft_vocab == config.vocab:
        return np.arange(config.vocab, dtype=np.int32)
    return read_draft_vocabulary(checkpoint, config.draft_vocab, config.vocab)


def _steps(record: Path) -> int | None:
    """Steps that made a drafter, those of what it was itself started from included."""
    try:
        told = json.loads(record.read_text(encoding="utf-8"))
        return int(told["steps"]["taken"]) + int((told.get("started_from") or {}).get("steps") or 0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
