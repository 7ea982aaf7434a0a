"""A DSpark drafter's stored tensors under the names and in the precision that its module takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from tfjax.checkpoints import Checkpoint, CheckpointError, TensorInfo, TensorSource
from tfjax.checkpoints.affine import AffineForm, dequantize, quantize

PREFIX = "model."
"""What some exports put before every name."""

GROUPS = (64, 32)
"""Columns that share a scale: the first that divides a weight's columns."""

UNROUNDED = ("confidence_head.", "d2t", "t2d")
"""Beginnings of names that keep their precision."""


class Unprefixed:
    """TensorSource of another's tensors without the prefix."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Raises CheckpointError where a name is there with the prefix and without."""
        self._inner = checkpoint.tensors
        self._names: dict[str, str] = {}
        for stored in self._inner.infos:
            name = stored.removeprefix(PREFIX)
            if name in self._names:
                raise CheckpointError(
                    checkpoint.path,
                    "two tensors for one",
                    tensor=name,
                    found=f"{self._names[name]} and {stored}",
                    expected="one of them",
                )
            self._names[name] = stored

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        return {name: self._inner.infos[stored] for name, stored in self._names.items()}

    def read(self, name: str) -> NDArray[Any]:
        return self._inner.read(self._names.get(name, name))


class Rounded:
    """TensorSource whose matrices have only the values that 8-bit affine codes have, as MLX would store them.

    They are held in the model's own type, so that products cost what they cost unrounded. Matrices whose columns fill
    no groups, vectors, and the confidence head stay as they are.
    """

    def __init__(self, inner: TensorSource, bits: int) -> None:
        self._inner, self._bits = inner, bits

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        return self._inner.infos

    def read(self, name: str) -> NDArray[Any]:
        values = self._inner.read(name)
        groups = [size for size in GROUPS if values.shape[-1] % size == 0]
        if values.ndim < 2 or not groups or name.startswith(UNROUNDED):
            return values
        form = AffineForm(self._bits, groups[0])
        return dequantize(quantize(values, form), form)
