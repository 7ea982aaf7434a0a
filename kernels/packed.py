"""Weights that stay quantized on the device, and are expanded where they are used.

A product of XLA's expands its weight to a temporary of the compute dtype and then is the very product of that array,
so it has the bits of the same weight expanded at load. What this saves is memory that weights hold, not memory traffic:
a product reads the codes, and writes and reads the temporary besides. The device's products expand tile by tile (see
gpu/packed_tiles.py): the same values, multiplied alike, for the traffic of the codes alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WORD_BITS = 32


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class PackedWeight:
    """An affine-quantized weight [..., in], in the layout of MLX's files (see checkpoints/affine.py).

    Leading axes select as an array's do, and what they select is expanded; `packed[...]` is the weight itself.

    Attributes:
        words: uint32 [..., in * bits / 32], the codes of a row as one stream of bits, lowest first.
        scales: bfloat16 or float16 [..., in / group]. Of such a scale and a code the product is exact in float32,
            so that value = scale * code + bias has one rounding, whether a compiler fuses it or not.
        biases: [..., in / group].
        bits: of a code.
        group: neighbouring columns that share a scale and a bias.
        dtype: of the values, which are rounded to it once.
    """

    words: jax.Array
    scales: jax.Array
    biases: jax.Array
    bits: int = field(metadata={"static": True})
    group: int = field(metadata={"static": True})
    dtype: np.dtype[Any] = field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the values."""
        return (*self.scales.shape[:-1], self.scales.shape[-1] * self.group)

    @property
    def ndim(self) -> int:
        return self.scales.ndim

    @property
    def nbytes(self) -> int:
        """What it takes packed."""
        return sum(part.nbytes for part in (self.words, self.scales, self.biases))

    def __getitem__(self, index: Any) -> Any:
        """The values at `index` of the leading axes, as `expanded` gives them; `...` gives the packed weight."""
        if index is ...:
            return self
        return _expand(self.at(index))

    def at(self, index: Any) -> PackedWeight:
        """What `index` selects of the leading axes, still packed."""
        part: PackedWeight = jax.tree.map(lambda array: array[index], self)
        return part


type Weight = jax.Array | PackedWeight
"""A weight as products take it."""


def at(weight: Weight, index: Any) -> Weight:
    """What `index` selects of the leading axes, as packed as the weight is; with None the weight as a stack of one."""
    return weight.at(index) if isinstance(weight, PackedWeight) else weight[index]


def expanded(weight: Weight) -> jax.Array:
    """The weight as an array: itself, or what its codes stand for."""
    if not isinstance(weight, PackedWeight):
        return weight
    # Without the barrier a compiler may merge the expansion into the product, which then can add in another order.
    values: jax.Array = jax.lax.optimization_barrier(_expand(weight))
    return values


def _expand(weight: PackedWeight) -> jax.Array:
    grouped = codes(weight.words, weight.bits).reshape(*weight.scales.shape, weight.group).astype(jnp.float32)
    scales, biases = (part.astype(jnp.float32)[..., None] for part in (weight.scales, weight.biases))
    values = (grouped * scales + biases).reshape(weight.shape)
    kind = jnp.finfo(weight.dtype)  # type: ignore[no-untyped-call]
    # A compiler may leave out a conversion to fewer bits and back, but not this.
    return jax.lax.reduce_precision(values, kind.nexp, kind.nmant).astype(weight.dtype)


def codes(words: jax.Array, bits: int) -> jax.Array:
    """Shapes: uint32 [..., n * bits / 32] -> uint32 [..., n]."""
    whole = math.lcm(bits, WORD_BITS)
    run_words, run_codes = whole // WORD_BITS, whole // bits
    first, shift = np.divmod(np.arange(run_codes) * bits, WORD_BITS)
    runs = words.reshape(*words.shape[:-1], -1, run_words)
    found = runs[..., first] >> shift.astype(np.uint32)
    cut = shift + bits > WORD_BITS
    if cut.any():
        rest = runs[..., np.minimum(first + 1, run_words - 1)] << np.where(cut, WORD_BITS - shift, 0).astype(np.uint32)
        found = jnp.where(cut, found | rest, found)
    return (found & np.uint32((1 << bits) - 1)).reshape(*words.shape[:-1], -1)
