"""Which parameters keep the checkpoint's packed form, and what they are then."""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tfjax.checkpoints import PackedSource
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
        if len(like.shape) < 2:
            return None
        unknown = self._of_unknown_form(parts)
        if unknown:
            kinds = " and ".join(sorted(set(unknown.values())))
            self._expanded[f"{kinds} cannot stay packed, {' and '.join(FORMS)} can"].append(next(iter(unknown)))
            return None
        found = list(filter(None, (self._tensors.packed(part.name) for part in parts)))
        if not found:
            return None
        reason = _obstacle(found, len(parts))
        if reason:
            self._expanded[reason].append(parts[0].name)
            return None
        return _joined([packed for packed, _ in found], found[0][1], like)

    def _of_unknown_form(self, parts: Sequence[Source]) -> dict[str, str]:
        """Tensors whose codes no operator takes, and their types. Reads nothing."""
        infos = {part.name: self._tensors.infos[part.name] for part in parts}
        return {name: info.dtype for name, info in infos.items() if info.quantized and not info.packed_type}

    def report(self) -> None:
        """Log what had to be expanded."""
        for reason, names in self._expanded.items():
            parameters = "parameter is" if len(names) == 1 else "parameters are"
            which = names[0] if len(names) == 1 else f"{names[0]} and others"
            log.warning("%d quantized %s expanded at load (%s): %s", len(names), parameters, reason, which)


def _obstacle(found: Sequence[tuple[Packed, AffineForm]], parts: int) -> str:
    """Why the parts cannot stay packed as one weight; empty where they can."""
    if len(found) < parts:
        return "only some of their parts are quantized"
    if len({form for _, form in found}) > 1:
        return "their parts have several forms"
    types = {packed.scales.dtype.name for packed, _ in found}
    if len(types) > 1 or not types <= set(EXACT_SCALES):
        return f"scales in {' and '.join(sorted(types))}, {' or '.join(EXACT_SCALES)} is needed"
    return ""


def _joined(found: Sequence[Packed], form: AffineForm, like: Any) -> PackedWeight:
    def part(name: str) -> Any:
        whole = np.concatenate([getattr(packed, name) for packed in found])
        return whole.reshape(*like.shape[:-1], whole.shape[-1])

    # Arrays of the host, until all of it is put on the device.
    words, scales, biases = (part(name) for name in Packed._fields)
    return PackedWeight(words, scales, biases, form.bits, form.group_size, np.dtype(like.dtype))


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
