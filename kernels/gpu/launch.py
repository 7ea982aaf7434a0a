"""How a kernel body is started, and how a start is checked for writes outside its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

SENTINEL = 0x7FC5
"""Bits that guards and not yet written outputs hold: a bfloat16 NaN, and twice that a float32 NaN."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How kernels are started.

    Attributes:
        interpret: run in Pallas' interpreter on the CPU.
        guard: entries of the first axis that are laid before and after every output and have to stay untouched. A
            kernel that writes there returns nothing but sentinels, and so does every element it does not write.
    """

    interpret: bool = False
    guard: int = 0


PLAIN = Launch()
"""What serving uses."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Names and sizes of the block axes, and what a block is made of.

    Attributes:
        scratch: shared memory and barriers of a block.
        warpgroups: where there are several, the axis `warpgroup` tells them apart.
        cluster: neighbouring blocks that share what one of them reads; the axis `cluster` tells them apart.
    """

    axes: tuple[tuple[str, int], ...]
    scratch: Sequence[Any] = ()
    approximate: bool = False
    warpgroups: int = 1
    cluster: int = 1

    @property
    def options(self) -> dict[str, Any]:
        """How a kernel is told of warpgroups and clusters."""
        several: dict[str, Any] = {}
        if self.warpgroups > 1:
            several |= {"num_threads": self.warpgroups, "thread_name": "warpgroup"}
        if self.cluster > 1:
            several |= {"cluster": (self.cluster,), "cluster_names": ("cluster",)}
        return several


def scalar(x: jax.Array) -> jax.Array:
    """A number as an operand. Each is one of its own: to join several is a kernel, as short as it may be."""
    return x.astype(jnp.int32).reshape(1)


def launch(
    body: Callable[..., None],
    grid: Grid,
    outputs: Sequence[jax.ShapeDtypeStruct],
    operands: Sequence[jax.Array],
    *,
    changed: Sequence[jax.Array] = (),
    name: str,
    how: Launch = PLAIN,
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Run `body(*operand refs, *changed refs, *output refs, *scratch)` once per block of the grid.

    Args:
        changed: arrays that keep their value where the kernel does not write. Their memory is reused where they are
            not used again.

    Returns:
        The outputs, and the changed arrays as they are then.
    """
    refs = [jax.new_ref(x) for x in changed]
    if not how.guard:
        written = list(_kernel(body, grid, name, how, outputs)(*operands, *refs))
        return written, [jax.freeze(ref) for ref in refs]
    guard, start, end = how.guard, len(operands) + len(refs), len(operands) + len(refs) + len(outputs)
    filled = [jax.new_ref(jnp.full((x.shape[0] + 2 * guard, *x.shape[1:]), _sentinel(x.dtype))) for x in outputs]

    def inside(*all_refs: Any) -> None:
        inner = [ref.at[guard : guard + out.shape[0]] for ref, out in zip(all_refs[start:end], outputs, strict=True)]
        body(*all_refs[:start], *inner, *all_refs[end:])

    _kernel(inside, grid, name, how, ())(*operands, *refs, *filled)
    return [_checked(jax.freeze(ref), guard) for ref in filled], [jax.freeze(ref) for ref in refs]


def _kernel(
    body: Callable[..., None], grid: Grid, name: str, how: Launch, outputs: Sequence[jax.ShapeDtypeStruct]
) -> Callable[..., Sequence[jax.Array]]:
    def named(*refs: Any) -> None:
        body(*refs)

    named.__name__ = name
    started: Callable[..., Sequence[jax.Array]] = plgpu.kernel(
        named,
        out_type=tuple(outputs),
        grid=tuple(size for _, size in grid.axes),
        grid_names=tuple(axis for axis, _ in grid.axes),
        scratch_types=tuple(grid.scratch),
        compiler_params=plgpu.CompilerParams(approx_math=grid.approximate),
        interpret=plgpu.InterpretGPUParams() if how.interpret else None,
        **grid.options,
    )
    return started


def _sentinel(dtype: Any) -> jax.Array:
    """One element that no kernel computes."""
    bits = {2: jnp.uint16, 4: jnp.uint32}[jnp.dtype(dtype).itemsize]
    pattern = SENTINEL if bits is jnp.uint16 else SENTINEL * 0x10001
    return jax.lax.bitcast_convert_type(jnp.asarray(pattern, bits), dtype)


def _checked(x: jax.Array, guard: int) -> jax.Array:
    """What lies between the guards, or sentinels only where a guard was touched."""
    sentinel = _sentinel(x.dtype)
    bits = {2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
    raw, untouched = (jax.lax.bitcast_convert_type(v, bits) for v in (x, sentinel))
    guards = jnp.concatenate([raw[:guard], raw[-guard:]])
    return jnp.where(jnp.all(guards == untouched), x[guard:-guard], sentinel)
