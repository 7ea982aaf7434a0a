"""Packed weights on their way into a product: a tile's codes become a dense bfloat16 tile in shared memory.

A value is scale * code + bias. The product is exact in float32, the sum is rounded to float32 and then to bfloat16,
which is what `tfjax.kernels.packed` defines, so that whatever multiplies the tile gives the bits of dense weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu

from tfjax.kernels.gpu.tiles import put, swizzled
from tfjax.kernels.packed import WORD_BITS, PackedWeight
from tfjax.kernels.routes import Unsupported

BF16 = jnp.bfloat16

RUN = 64
"""Columns of the inner axis that are expanded at a time: a row of the widest swizzle."""

BITS, GROUPS = (4, 8), (32, 64, 128)
"""Of codes, and columns that share a scale, for which there are layouts."""

WARPS, LANES = 4, 32

FLOAT_OF_CODE = 0x4B000000
"""Bits of the float32 2**23: with a code in its lowest bits it is 2**23 + code."""


def check_form(weight: PackedWeight) -> None:
    """Raises Unsupported where there is no layout for the codes."""
    if weight.dtype != BF16 or weight.bits not in BITS or weight.group not in GROUPS:
        raise Unsupported(
            f"codes of {weight.bits} bits in groups of {weight.group} for {weight.dtype}; the device route makes "
            "bfloat16 of 4 and 8 bits in groups of 32, 64 and 128, so use the reference route"
        )


@dataclass(frozen=True, slots=True)
class RunForm:
    """One run of a tile as registers hold it: every thread has whole words, and then their codes side by side.

    Attributes:
        columns: rows of the weight that a tile holds.
        bits, group: as in PackedWeight.
        interpret: no device; the interpreter knows no registers.
    """

    columns: int
    bits: int
    group: int
    interpret: bool = False

    @property
    def words(self) -> int:
        return RUN * self.bits // WORD_BITS

    @property
    def codes(self) -> int:
        """In a word."""
        return WORD_BITS // self.bits

    @property
    def groups(self) -> int:
        """In a run, one where a group is longer."""
        return max(1, RUN // self.group)

    @property
    def spread(self) -> Any:
        """Layout of [columns, words, codes]."""
        rows = LANES // self.words
        tiling = plgpu.Tiling(((WARPS * rows, self.words, self.codes), (rows, self.words, self.codes)))
        return plgpu.Layout.TILED(tiling, warp_dims=(-6,), lane_dims=(-3, -2), vector_dim=-1)

    @property
    def joined(self) -> Any:
        """Layout of [columns, RUN] in which every thread holds what it holds of `spread`."""
        rows = LANES // self.words
        tiling = plgpu.Tiling(((WARPS * rows, RUN), (rows, RUN), (self.codes,)))
        return plgpu.Layout.TILED(tiling, warp_dims=(-5,), lane_dims=(-3, -2), vector_dim=-1)

    def values(self, words: Any, scales: Any, biases: Any) -> Any:
        """Shapes: words [columns, words], scales and biases float32 of as many -> bfloat16 [columns, RUN]."""
        return self._join(values_of(words, scales, biases, self.bits, self.spread))

    def _join(self, values: Any) -> Any:
        shape = (self.columns, RUN)
        if self.interpret:
            return values.reshape(shape)
        kind = plgpu.ShapeDtypeStruct(shape, BF16, layout=self.joined)

        # The registers are the same; only how they are counted is not, which a reshape cannot express.
        def join(_: Any, x: Any) -> Any:
            layout = self.joined.to_mgpu()
            registers = x.registers.reshape(layout.registers_shape(shape))
            return mgpu.FragmentedArray(_registers=registers, _layout=layout, _is_signed=None)

        inlined: Any = plgpu.inline_mgpu(arg_types=(self.spread,), return_type=kind)
        return inlined(join)(values)


def values_of(words: Any, scales: Any, biases: Any, bits: int, layout: Any) -> Any:
    """Shapes: words, and scales and biases float32, [n, words] -> bfloat16 [n, words, codes] in the layout."""
    shape = (*words.shape, WORD_BITS // bits)

    def along(x: Any) -> Any:
        return plgpu.layout_cast(jax.lax.broadcast_in_dim(x, shape, (0, 1)), layout)

    place = plgpu.broadcasted_iota(jnp.int32, shape, 2, layout=layout).astype(jnp.uint32)
    code = (along(words) >> (place * bits)) & jnp.uint32((1 << bits) - 1)
    # An integer's conversion takes four times as long.
    number = jax.lax.bitcast_convert_type(code | jnp.uint32(FLOAT_OF_CODE), jnp.float32) - jnp.float32(1 << 23)
    return (number * along(scales) + along(biases)).astype(BF16)


def row_layout_of_groups(groups: int, words: int, codes: int) -> Any:
    """Layout of a packed row [groups, words, codes]: as many threads as groups come out even for."""
    rows = LANES // words
    if rows > 1 and groups % (WARPS * rows) == 0:
        tiling = plgpu.Tiling(((WARPS * rows, words, codes), (rows, words, codes)))
        return plgpu.Layout.TILED(tiling, warp_dims=(-6,), lane_dims=(-3, -2), vector_dim=-1)
    alike = (plgpu.Replicated(WARPS),)
    if rows > 1 and groups % rows == 0:
        tiling = plgpu.Tiling(((rows, words, codes),))
        return plgpu.Layout.TILED(tiling, warp_dims=alike, lane_dims=(-3, -2), vector_dim=-1)
    lanes = (plgpu.Replicated(rows), -2) if rows > 1 else (-2,)
    return plgpu.Layout.TILED(plgpu.Tiling(((1, words, codes),)), warp_dims=alike, lane_dims=lanes, vector_dim=-1)


@dataclass(frozen=True, slots=True)
class Scratch:
    """Shared memory of a block beside the pipeline's: expanded runs in turn, and all scales of the tile's part."""

    runs: Any
    scales: Any
    biases: Any


def scratch_types(form: RunForm, matrices: int, groups: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Of the fields of Scratch. Shapes: [2, matrices, columns, RUN], twice [matrices, groups, columns]."""
    scales = plgpu.SMEM((matrices, groups, form.columns), dtype)
    return plgpu.SMEM((2, matrices, form.columns, RUN), BF16, transforms=swizzled(RUN, 2)), scales, scales


def scratch_bytes(form: RunForm, matrices: int, groups: int) -> int:
    """Of all of `scratch_types`. Scales have two bytes."""
    return 2 * 2 * matrices * form.columns * (RUN + groups)


def brought_runs(form: RunForm, scratch: Scratch, stage: Callable[[], None], inner: int) -> Any:
    """The `runs` of `walked` for steps that bring words [columns, inner * bits / 32] of each matrix.

    Args:
        stage: puts the scales and biases into the scratch; called in the first step, when tiles are on their way.
    """

    def runs(index: Any, x_tile: Any, brought: Any) -> Iterator[tuple[Any, Any]]:
        @pl.when(index[0] == 0)
        def _() -> None:
            stage()
            plgpu.commit_smem()

        for run in range(inner // RUN):
            number = index[0] * (inner // RUN) + run
            # The product of the run before may still read the other one.
            expanded = scratch.runs.at[jax.lax.rem(number, 2)]
            for matrix, tile in enumerate(brought):
                words = plgpu.load(
                    tile.at[:, pl.ds(run * form.words, form.words)], layout=form.spread.reduce(2), optimized=False
                )
                scales, biases = (_of_words(form, ref.at[matrix], number) for ref in (scratch.scales, scratch.biases))
                expanded[matrix] = form.values(words, scales, biases)
            plgpu.commit_smem()
            yield x_tile.at[:, pl.ds(run * RUN, RUN)], [expanded.at[matrix] for matrix in range(len(brought))]

    return runs


def _of_words(form: RunForm, ref: Any, run: Any) -> Any:
    """A run's scales or biases, each word's. Shapes: ref [groups, columns] -> float32 [columns, words]."""
    shape = (form.columns, form.words)
    layout = form.spread.reduce(2)

    def of_group(number: Any) -> Any:
        vector = plgpu.load(ref.at[number], layout=layout.reduce(1), optimized=False).astype(jnp.float32)
        return plgpu.layout_cast(jax.lax.broadcast_in_dim(vector, shape, (0,)), layout)

    if form.groups == 1:
        return of_group(jax.lax.div(run * RUN, form.group))
    found = of_group(run * form.groups)
    word = plgpu.broadcasted_iota(jnp.int32, shape, 1, layout=layout)
    for group in range(1, form.groups):
        first = group * form.words // form.groups
        found = jnp.where(word >= first, of_group(run * form.groups + group), found)
    return found


def stage_groups(source: Any, target: Any) -> None:
    """Scales or biases of a tile's part to shared memory. Shapes: [columns, groups] -> [groups, columns]."""
    put(target.T, plgpu.load(source, layout=_group_layout(target.shape[0]), optimized=False))


def _group_layout(groups: int) -> Any:
    """Layout of [64 * n, groups] where neighbouring threads take neighbouring groups, as many as come out even."""
    side = math.gcd(groups, 8)
    rows = LANES // side
    if side == 1:
        # One row a thread would be more rows than a tile has; so pairs of warps do the same.
        tiling = plgpu.Tiling(((2 * rows, 1), (rows, 1)))
        return plgpu.Layout.TILED(tiling, warp_dims=(-4, plgpu.Replicated(2)), lane_dims=(-2,), vector_dim=-1)
    tiling = plgpu.Tiling(((WARPS * rows, side), (rows, side), (1,)))
    return plgpu.Layout.TILED(tiling, warp_dims=(-5,), lane_dims=(-3, -2), vector_dim=-1)
