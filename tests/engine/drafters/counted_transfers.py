"""Counts what goes between host and device while programs run on a target and its drafter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tfjax.engine.drafters.block_plan import BlockBucket
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.target import TargetBackend


class OnDevice:
    """A program's output. Whoever wants its values has to ask this, which is written down; nothing else reads it."""

    def __init__(self, array: jax.Array, log: list[str]) -> None:
        self.array = array
        self._log = log

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def copy_to_host_async(self) -> None:
        """Begins what the read ends."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        self._log.append(f"read {'x'.join(map(str, self.shape))}")
        return np.array(self.array, dtype)

    def tolist(self) -> list[Any]:
        values: list[Any] = np.asarray(self).tolist()
        return values

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __getitem__(self, place: Any) -> Any:
        return np.asarray(self)[place]


class _Counted:
    """Programs by their keys; a call is written down with the number of arrays that it takes from the host."""

    def __init__(self, programs: dict[Any, Any], name_of: Callable[[Any], str], log: list[str]) -> None:
        self._programs, self._name_of, self._log = programs, name_of, log

    def __contains__(self, key: Any) -> bool:
        return key in self._programs

    def __getitem__(self, key: Any) -> Any:
        def call(*arguments: Any) -> Any:
            taken = sum(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(arguments))
            self._log.append(f"{self._name_of(key)} takes {taken}")
            with jax.transfer_guard_host_to_device("allow"):
                made = self._programs[key](*jax.tree.map(_array, arguments))
            return jax.tree.map(lambda leaf: OnDevice(leaf, self._log), made)

        return call


def _part_of_drafting(key: Any) -> str:
    return "hold" if isinstance(key, BlockBucket) else "absorb" if isinstance(key, int) else "join"


def _array(leaf: Any) -> Any:
    return leaf.array if isinstance(leaf, OnDevice) else leaf


@contextmanager
def counted_transfers(target: TargetBackend, drafter: DSparkDrafter) -> Iterator[list[str]]:
    """What is called and read, in order. Any other array that goes to the device raises.

    No prompt may begin meanwhile: its tables are set by programs that are not counted.
    """
    log: list[str] = []
    owners: dict[Any, Callable[[Any], str]] = {
        target.step: lambda key: "verify",
        drafter.step: _part_of_drafting,
    }
    programs = {owner: owner._compiled for owner in owners}
    for owner, name_of in owners.items():
        owner._compiled = _Counted(programs[owner], name_of, log)
    try:
        with jax.transfer_guard_host_to_device("disallow_explicit"):
            yield log
    finally:
        for owner in owners:
            owner._compiled = programs[owner]
        left = target.state, drafter.cache, drafter._waiting
        target.state, drafter.cache, drafter._waiting = jax.tree.map(_array, left)
