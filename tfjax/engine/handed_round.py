"""Memory for a forward's results that is handed round, so that they lie where earlier ones lay.

XLA launches a program's kernels as one graph, in which a call rewrites all nodes that touch memory at other addresses
than the call before. Results lie in new memory at each call, and XLA lays what a program computes meanwhile into the
memory of results too, so that nearly all nodes are rewritten. A program that is given the memory of its results, and
reads it at its end, has nothing else in there: only the kernels that write the results touch it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import jax
import jax.numpy as jnp


class HandedRound:
    """Results of one kind and one compiled forward, which a later forward overwrites."""

    def __init__(self, like: Any, kept: int = 0) -> None:
        """`like` are arrays of the results' shapes; the latest `kept` results are left to their readers."""
        self._like, self._kept = like, kept
        self._spare = deque(self._new() for _ in range(kept + 1))

    def _new(self) -> Any:
        return jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), self._like)

    def take(self) -> Any:
        """Results to overwrite: to be donated."""
        return self._spare.popleft() if len(self._spare) > self._kept else self._new()

    def give(self, results: Any) -> None:
        """Results that may be overwritten, after `kept` others were given."""
        self._spare.append(results)


def copied(*arrays: jax.Array) -> list[jax.Array]:
    """The same int32 arrays in memory of the program's own: one kernel alone reads what the host sends."""
    zero = jax.lax.optimization_barrier(jnp.int32(0))
    together = jnp.concatenate([array.reshape(-1) for array in arrays]) + zero
    together, own, start = jax.lax.optimization_barrier(together), [], 0
    for array in arrays:
        own.append(together[start : start + array.size].reshape(array.shape))
        start += array.size
    return own


def written_last(results: Any, old: Any) -> Any:
    """The results in the memory of old ones, which is touched by nothing before."""
    always = jax.lax.optimization_barrier(jnp.ones((), bool))
    ready = jax.lax.optimization_barrier(results)
    return jax.tree.map(lambda new, was: jax.lax.select(jnp.broadcast_to(always, new.shape), new, was), ready, old)
