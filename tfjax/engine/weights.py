"""From a checkpoint's tensors to a model's parameters."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tfjax.checkpoints import Checkpoint, CheckpointError, PackedSource, TensorSource
from tfjax.checkpoints.gguf_affine import FORMS
from tfjax.engine.kernel_choice import XLA, Kernels, choose_kernels, refusal
from tfjax.engine.memory import check_context, memory_budget
from tfjax.engine.packing import Packing, described, largest_expansion, packed_weights
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.routes import Route
from tfjax.models.config import ConfigError
from tfjax.models.family import Family, Source
from tfjax.models.registry import family_for
from tfjax.setting_values import KERNELS_AUTO, WEIGHTS_AUTO, WEIGHTS_DENSE, WEIGHTS_PACKED

log = logging.getLogger(__name__)

Progress = Callable[[str, float], None]
"""Told the phase of a long start and the share of it that is done (0..1)."""

DTYPES: Mapping[str, Any] = {"auto": jnp.bfloat16, "bfloat16": jnp.bfloat16, "float32": jnp.float32}
"""`auto` is bfloat16 everywhere: half the bytes, and on CPU the faster form too."""

MOST_DENSE = 0.75
"""Share of the memory budget that expanded weights may take before they stay packed; the cache needs the rest."""

XLA_ALIGNMENT = 64
"""Bytes to whose multiple an array of the host is placed that XLA takes over without a copy."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A family's module with its parameters on the device.

    Attributes:
        config: the family's own config.
        dtype: of parameters, residual stream and cache.
        kernels: what it runs by; the module is in stacked form where these are.
    """

    family: Family[Any]
    config: Any
    module: nnx.Module
    dtype: Any
    kernels: Kernels = XLA

    def empty_cache(self, pages: int, lanes: int) -> Any:
        """Zeroed, in the form that the module takes."""
        form = self.family.stacked if self.kernels.stacked else None
        return (form or self.family).empty_cache(self.config, pages, PAGE_ROWS, lanes, self.dtype)

    @property
    def weight_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(self.module)))

    @property
    def expansion_bytes(self) -> int:
        """Of the largest temporary that a packed weight is expanded to; 0 where none is, or kernels expand tiles."""
        if self.kernels.route is not Route.REFERENCE:
            return 0
        return largest_expansion(nnx.state(self.module))

    @property
    def weights(self) -> str:
        """How they lie in memory, in words."""
        return described(nnx.state(self.module))


def load_model(
    checkpoint: Checkpoint,
    dtype: str,
    progress: Progress,
    context: int | None = None,
    *,
    weights: str = WEIGHTS_DENSE,
    kernels: str = "auto",
) -> LoadedModel:
    """Check the asked context and every tensor's shape against the config, then read.

    `weights` is a value of --weights: whether those that the checkpoint has quantized stay packed. `kernels` is one of
    --kernels. Device kernels multiply packed weights where these are asked for and a family's form takes them.

    Raises:
        ConfigError: a config that cannot be honoured, or weights that cannot stay packed as they must.
        DoesNotFit: more context than the model was trained for.
        CheckpointError: a tensor that is missing, superfluous or of another shape.
    """
    family = family_for(checkpoint.architecture)
    config = family.config_from_hf(checkpoint.config)
    check_context(context, config.context)
    packed = stay_packed(weights, dense_bytes(family, config, dtype))
    if kernels == KERNELS_AUTO and packed and weights != WEIGHTS_PACKED and is_quantized(checkpoint):
        why = "--weights keeps packed what would fill the memory"
        run_by = Kernels(Route.REFERENCE, f"the kernels multiply dense weights where not asked otherwise, and {why}")
    else:
        run_by = choose_kernels(kernels, family, config, DTYPES[dtype])
    if run_by.stacked and weights == WEIGHTS_PACKED and not takes_packed(family):
        run_by = Kernels(
            Route.REFERENCE, f"the kernels of {family.architecture} multiply dense weights, and --weights is packed"
        )
    elif run_by.stacked and weights == WEIGHTS_PACKED and stacks_expand_more(checkpoint, family, config):
        run_by = Kernels(Route.REFERENCE, "the kernels want all layers packed alike, and --weights is packed")
    packed = packed and (weights == WEIGHTS_PACKED or not run_by.stacked)
    model = read_model(checkpoint, family, config, dtype, progress, packed=packed, kernels=run_by)
    if packed and run_by.stacked:
        model = unless_refused(model)
    if weights == WEIGHTS_PACKED and not packed_weights(nnx.state(model.module)):
        raise ConfigError(
            f"--weights packed: {checkpoint.path} has no weights that can stay packed; found "
            f"{_stored_types(checkpoint)}, expected MLX's affine form with scales in bfloat16 or float16, or GGUF's "
            f"{', '.join(FORMS)}; leave it out or give --weights dense"
        )
    log.info("weights: %s", model.weights)
    return model


def takes_packed(family: Family[Any]) -> bool:
    """Whether the form for device kernels does."""
    return family.stacked is not None and family.stacked.takes_packed


def stacks_expand_more(checkpoint: Checkpoint, family: Family[Any], config: Any) -> bool:
    """Whether weights cannot stay packed in the form for device kernels that can in modules, each layer by itself."""
    infos = checkpoint.tensors.infos

    def expanded(sources: Mapping[str, tuple[Source, ...]]) -> int:
        """Tensors that could stay packed, of parameters whose parts could not all alike."""
        stored = ([infos[part.name].packed_type for part in parts if part.name in infos] for parts in sources.values())
        return sum(bool(kind) for kinds in stored if len(set(kinds)) > 1 for kind in kinds)

    form = family.stacked
    assert form is not None
    return expanded(form.sources(config)) > expanded(family.sources(config))


def unless_refused(model: LoadedModel) -> LoadedModel:
    """The model, laid out in modules where the kernels cannot take what its weights are packed as."""
    form = model.family.stacked
    assert form is not None
    trouble = refusal(model.module, form, model.config, model.dtype)
    if not trouble:
        return model
    run_by = Kernels(Route.REFERENCE, f"there are no kernels for {trouble}")
    return replace(model, module=form.unstacked(model.module), kernels=run_by)


def dense_bytes(family: Family[Any], config: Any, dtype: str) -> int:
    """What all parameters take where none is packed."""
    sizes = [math.prod(part.shape) for parts in family.sources(config).values() for part in parts]
    bytes_each: int = np.dtype(DTYPES[dtype]).itemsize
    return sum(sizes) * bytes_each


def stay_packed(weights: str, dense_bytes: int) -> bool:
    """What a value of --weights means for a model that takes so much expanded.

    Expanding weights in every forward takes time, so that without being asked it is done only where it must be.
    """
    if weights == WEIGHTS_AUTO:
        return dense_bytes > MOST_DENSE * memory_budget()
    return weights == WEIGHTS_PACKED


def is_quantized(checkpoint: Checkpoint) -> bool:
    """Whether most of the weights are stored in forms that can stay packed."""
    tensors = checkpoint.tensors
    if not isinstance(tensors, PackedSource):
        return False
    sizes = [(math.prod(info.shape), bool(info.packed_type)) for info in tensors.infos.values()]
    return 2 * sum(size for size, packs in sizes if packs) > sum(size for size, _ in sizes)


def _stored_types(checkpoint: Checkpoint) -> str:
    return ", ".join(sorted({info.dtype for info in checkpoint.tensors.infos.values()}))


def read_model(
    checkpoint: Checkpoint,
    family: Family[Any],
    config: Any,
    dtype: str,
    progress: Progress,
    *,
    beside: Collection[str] = (),
    packed: bool = False,
    kernels: Kernels = XLA,
) -> LoadedModel:
    """Check every tensor's shape against the config, then read. Parameters without a source keep their shapes only.

    `beside` are tensors that the checkpoint may hold besides the parameters. With `packed` those parameters stay
    packed that can.

    Raises:
        CheckpointError: a tensor that is missing, superfluous or of another shape.
    """
    kind, form = DTYPES[dtype], family.stacked if kernels.stacked else None
    sources = (form or family).sources(config)
    check_tensors(checkpoint, sources, beside)
    module: nnx.Module = nnx.eval_shape(
        lambda: form.build(config, kind, kernels.route) if form else family.build(config, kind)
    )
    state = nnx.state(module)
    flat = dict(nnx.to_flat_state(state))
    total = len(sources)
    packing = Packing(checkpoint.tensors) if packed and isinstance(checkpoint.tensors, PackedSource) else None
    for done, (path, parts) in enumerate(sources.items()):
        key = tuple(int(part) if part.isdigit() else part for part in path.split("."))
        like = flat[key].get_value()
        value = None if packing is None else packing.parameter(parts, like)
        flat[key] = flat[key].replace(
            jax.device_put(_joined(checkpoint.tensors, parts, like) if value is None else value)
        )
        progress("reading weights", (done + 1) / total)
    if packing is not None:
        packing.report()
    nnx.update(module, nnx.from_flat_state(flat))
    return LoadedModel(family, config, module, kind, kernels)


def check_tensors(
    checkpoint: Checkpoint, sources: Mapping[str, tuple[Source, ...]], beside: Collection[str] = ()
) -> None:
    """Compare the checkpoint's tensors with what the config demands, without reading data.

    Raises:
        CheckpointError: naming the first tensor that is missing, of another shape, or unknown and not ignorable.
    """
    infos = checkpoint.tensors.infos
    wanted = {source.name: source for parts in sources.values() for source in parts}
    for name, source in wanted.items():
        shape, note = source.shape, source.note
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
    """The parts laid end to end along the first axis, in the parameter's shape and dtype. Holds one part at a time."""
    whole = _aligned(like.shape, like.dtype)
    flat, done = whole.reshape(-1), 0
    for part in parts:
        read = tensors.read(part.name)
        values = (read if part.laid is None else part.laid(read)).reshape(-1)
        flat[done : done + values.size] = values
        done += values.size
    assert done == flat.size, f"{done} of {flat.size} values of a parameter have a source"
    return whole


def _aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Not initialized, and so placed that the CPU's XLA takes the array over as it is; another it would copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(size + XLA_ALIGNMENT, np.uint8)
    start = -room.ctypes.data % XLA_ALIGNMENT
    array: NDArray[Any] = room[start : start + size].view(dtype).reshape(shape)
    return array
