"""Which parameters keep the checkpoint's packed form, and what they are then."""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tfjax.checkpoints import PackedSource, TensorInfo
from tfjax.checkpoints.affine import AffineForm, Packed
from tfjax.checkpoints.gguf_affine import FORMS
from tfjax.kernels.packed import PackedWeight
from tfjax.models.family import Source

log = logging.getLogger(__name__)

EXACT_SCALES = ("bfloat16", "float16")
"""Types of scales whose product with a code is exact in float32 (see kernels/packed.py)."""


class Packing:
    """Makes packed parameters of a checkpoint's tensors, and remembers which had to be expanded and why.

    A parameter stays packed where all of its tensors are, in one form, with scales that the operators expand exactly.
    """

    def __init__(self, tensors: PackedSource) -> None:
        self._tensors = tensors
        self._expanded: defaultdict[str, list[str]] = defaultdict(list)

    def parameter(self, parts: Sequence[Source], like: Any) -> PackedWeight | None:
        """The parts' codes laid end to end along the first axis, on the host; None where it has to be expanded.

        `like` has the parameter's shape and dtype.
        """
        if not all(is_matrix(part) for part in parts):
            return None
        infos = {part.name: self._tensors.infos[part.name] for part in parts}
        reason, tensor = _obstacle_of_types(infos)
        if not reason and all(info.packed_type for info in infos.values()):
            whole = self._joined(parts, like)
            if isinstance(whole, PackedWeight):
                return whole
            reason = whole
        if reason:
            self._expanded[reason].append(tensor)
        return None

    def _joined(self, parts: Sequence[Source], like: Any) -> PackedWeight | str:
        """The parts as one weight, or why they are none. Holds one part at a time beside it."""
        whole: _Whole | None = None
        for part in parts:
            found = self._tensors.packed(part.name)
            if found is None:
                return ""
            packed, form = found
            whole = whole or _Whole(packed, form, like)
            reason = whole.obstacle(packed, form)
            if reason:
                return reason
            whole.add(packed)
        assert whole is not None, "a parameter has parts"
        return whole.weight(like)

    def report(self) -> None:
        """Log what had to be expanded."""
        for reason, names in self._expanded.items():
            parameters = "parameter is" if len(names) == 1 else "parameters are"
            which = names[0] if len(names) == 1 else f"{names[0]} and others"
            log.warning("%d quantized %s expanded at load (%s): %s", len(names), parameters, reason, which)


def is_matrix(part: Source) -> bool:
    """Whether products are made with it: vectors stay as they are, and so do the filters of convolutions."""
    return len(part.shape) > 1 and 1 not in part.shape


def _obstacle_of_types(infos: Mapping[str, TensorInfo]) -> tuple[str, str]:
    """Why parts of these stored types cannot stay packed, and a tensor to name; the former is empty where they can."""
    unknown = {name: info.dtype for name, info in infos.items() if info.quantized and not info.packed_type}
    if unknown:
        kinds = " and ".join(sorted(set(unknown.values())))
        return f"{kinds} cannot stay packed, {' and '.join(FORMS)} can", next(iter(unknown))
    types, first = {info.packed_type for info in infos.values()}, next(iter(infos))
    if "" in types and len(types) > 1:
        return "only some of their parts are quantized", first
    return ("their parts have several forms" if len(types) > 1 else ""), first


class _Whole:
    """A weight that its parts are put into, one after another along the first axis. Arrays of the host."""

    def __init__(self, first: Packed, form: AffineForm, like: Any):
        """`first` is any of the parts, which are alike but for their rows; `like` has the whole's shape."""
        rows = math.prod(like.shape[:-1])
        self._form = form
        self._parts = Packed(*(np.empty((rows, part.shape[-1]), part.dtype) for part in first))
        self._done = 0

    def obstacle(self, packed: Packed, form: AffineForm) -> str:
        """Why a part is none of this weight; empty where it is."""
        if form != self._form:
            return "their parts have several forms"
        types = {self._parts.scales.dtype.name, packed.scales.dtype.name}
        if len(types) > 1 or not types <= set(EXACT_SCALES):
            return f"scales in {' and '.join(sorted(types))}, {' or '.join(EXACT_SCALES)} is needed"
        return ""

    def add(self, packed: Packed) -> None:
        rows = slice(self._done, self._done + len(packed.scales))
        for whole, part in zip(self._parts, packed, strict=True):
            whole[rows] = part
        self._done = rows.stop

    def weight(self, like: Any) -> PackedWeight:
        assert self._done == len(self._parts.scales), f"{self._done} of {len(self._parts.scales)} rows have a source"
        words, scales, biases = (part.reshape(*like.shape[:-1], -1) for part in self._parts)
        # They stay arrays of the host, until all of it is put on the device.
        arrays: tuple[Any, Any, Any] = (words, scales, biases)
        return PackedWeight(*arrays, self._form.bits, self._form.group_size, np.dtype(like.dtype))


def packed_weights(parameters: Any) -> list[PackedWeight]:
    """The packed ones of a tree of parameters."""
    return [leaf for leaf in weights_of(parameters) if isinstance(leaf, PackedWeight)]


def weights_of(parameters: Any) -> list[Any]:
    """Leaves of a tree of parameters, a packed weight being one."""
    return jax.tree.leaves(parameters, is_leaf=lambda leaf: isinstance(leaf, PackedWeight))


def described(parameters: Any) -> str:
    """How the parameters lie in memory, and their size."""
    leaves = weights_of(parameters)
    by_bits: Counter[int] = Counter()
    for leaf in packed_weights(parameters):
        by_bits[leaf.bits] += leaf.nbytes
    gib = sum(leaf.nbytes for leaf in leaves) / 2**30
    bits = " and ".join(f"{bits}-bit" for bits, _ in by_bits.most_common())
    return f"packed {bits}, {gib:.2f} GiB" if bits else f"dense, {gib:.2f} GiB"


def largest_expansion(parameters: Any) -> int:
    """Bytes of the largest temporary that a product of a packed weight makes."""
    return max((math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in packed_weights(parameters)), default=0)
