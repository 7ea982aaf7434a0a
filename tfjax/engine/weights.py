"""From a checkpoint's tensors to a model's parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tfjax.checkpoints import Checkpoint, CheckpointError, TensorSource
from tfjax.engine.memory import check_context
from tfjax.models.family import Family, Source
from tfjax.models.registry import family_for

Progress = Callable[[str, float], None]
"""Told the phase of a long start and the share of it that is done (0..1)."""

DTYPES: Mapping[str, Any] = {"auto": jnp.bfloat16, "bfloat16": jnp.bfloat16, "float32": jnp.float32}
"""`auto` is bfloat16 everywhere: half the bytes, and on CPU the faster form too."""

_NUMPY = {jnp.bfloat16: ml_dtypes.bfloat16, jnp.float32: np.float32}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A family's module with its parameters on the device.

    Attributes:
        config: the family's own config.
        dtype: of parameters, residual stream and cache.
    """

    family: Family[Any]
    config: Any
    module: nnx.Module
    dtype: Any

    @property
    def weight_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(self.module)))


def load_model(checkpoint: Checkpoint, dtype: str, progress: Progress, context: int | None = None) -> LoadedModel:
    """Check the asked context and every tensor's shape against the config, then read.

    Raises:
        ConfigError: a config that cannot be honoured.
        DoesNotFit: more context than the model was trained for.
        CheckpointError: a tensor that is missing, superfluous or of another shape.
    """
    family = family_for(checkpoint.architecture)
    config = family.config_from_hf(checkpoint.config)
    check_context(context, config.context)
    return read_model(checkpoint, family, config, dtype, progress)


def read_model(
    checkpoint: Checkpoint,
    family: Family[Any],
    config: Any,
    dtype: str,
    progress: Progress,
    *,
    beside: Collection[str] = (),
) -> LoadedModel:
    """Check every tensor's shape against the config, then read. Parameters without a source keep their shapes only.

    `beside` are tensors that the checkpoint may hold besides the parameters.

    Raises:
        CheckpointError: a tensor that is missing, superfluous or of another shape.
    """
    sources = family.sources(config)
    check_tensors(checkpoint, sources, beside)
    kind = DTYPES[dtype]
    module = nnx.eval_shape(lambda: family.build(config, kind))
    state = nnx.state(module)
    flat = dict(nnx.to_flat_state(state))
    total = len(sources)
    for done, (path, parts) in enumerate(sources.items()):
        key = tuple(int(part) if part.isdigit() else part for part in path.split("."))
        flat[key] = flat[key].replace(jax.device_put(_joined(checkpoint.tensors, parts, flat[key].get_value())))
        progress("reading weights", (done + 1) / total)
    nnx.update(module, nnx.from_flat_state(flat))
    return LoadedModel(family, config, module, kind)


def check_tensors(
    checkpoint: Checkpoint, sources: Mapping[str, tuple[Source, ...]], beside: Collection[str] = ()
) -> None:
    """Compare the checkpoint's tensors with what the config demands, without reading data.

    Raises:
        CheckpointError: naming the first tensor that is missing, of another shape, or unknown and not ignorable.
    """
    infos = checkpoint.tensors.infos
    wanted = {source.name: source for parts in sources.values() for source in parts}
    for name, (_, shape, note) in wanted.items():
        if name not in infos:
            raise CheckpointError(checkpoint.path, f"tensor {name} is missing", expected=f"shape {shape}")
        if infos[name].shape != shape:
            raise CheckpointError(
                infos[name].file,
                f"tensor {name} has another shape than config.json says",
                found=infos[name].shape,
                expected=f"{shape}, from {note}" if note else shape,
            )
    for name in infos:
        if name not in wanted and name not in beside and not _ignorable(name):
            raise CheckpointError(
                infos[name].file,
                f"tensor {name} has no place in this architecture",
                found=infos[name].shape,
                expected="only tensors that config.json accounts for (are bias flags or the tied head set right?)",
            )


def _ignorable(name: str) -> bool:
    """Tensors that repeat what the config says: stored frequencies, and a stored copy of a tied head."""
    return name.endswith("rotary_emb.inv_freq") or name == "lm_head.weight"


def _joined(tensors: TensorSource, parts: tuple[Source, ...], like: Any) -> NDArray[Any]:
    """The parts laid end to end along the first axis, in the parameter's shape and dtype."""
    read = [tensors.read(part.name).astype(like.dtype) for part in parts]
    whole = read[0] if len(read) == 1 else np.concatenate(read)
    return whole.reshape(like.shape)
