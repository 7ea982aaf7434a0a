"""What a kernel is asked: rows, where they stand, and what has to come out in float64."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.kernels.contract.controls import Control

ROWS = 129
"""Different rows of a problem on a device; in the interpreter there are fewer."""

BUCKETS = (8, 16, 32, 64, 128, 256)
"""Row counts that programs are compiled for; the count of rows that matter is an argument."""

SMALL_ROWS, SMALL_BUCKETS = 9, (8, 16)
"""The same of problems for the interpreter."""

type Call = Callable[..., Any]
"""An operator of one route: the public function without `route`."""


class Style(enum.StrEnum):
    """Numbers that a problem is made of."""

    NORMAL = "normal"
    SPREAD = "spread"
    CANCEL = "cancel"
    POSITIVE = "positive"


STRESS = (Style.SPREAD, Style.CANCEL, Style.POSITIVE)


class Judged(NamedTuple):
    """Part of an output beside its float64 oracle.

    Attributes:
        scale: the size that an error is held against under stress: the sum of what was added without its signs.
        bound, stress_bound: the largest relative errors, of a row's norm and of an element over its scale.
    """

    name: str
    found: NDArray[np.float64]
    wanted: NDArray[np.float64]
    scale: NDArray[np.float64]
    bound: float
    stress_bound: float


class Problem(Protocol):
    """One kernel at one size.

    Attributes:
        key: what `step` depends on beside its arguments; problems of one class and key share programs.
        rows: how many different rows there are.
        buckets: as BUCKETS.
        places: names of the ways to place rows; what comes out must not depend on them.
        data: arrays on the device.
    """

    key: tuple[Any, ...]
    rows: int
    buckets: tuple[int, ...]
    places: tuple[str, ...]
    data: Any

    def arrange(self, rows: Sequence[int], bucket: int, place: str) -> Any:
        """Where `rows` stand in a forward of `bucket` rows: host arrays."""

    def step(self, call: Call, data: Any, arranged: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        """Traced: outputs with the row first, and how many elements were changed that no row owns."""

    def judge(self, rows: Sequence[int], outputs: Sequence[NDArray[Any]]) -> list[Judged]:
        """Outputs of `rows` beside their oracles."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel under contract.

    Attributes:
        device: module of the device route, whose function has the operator's name.
        cases: problems by the names of published sizes.
        small: a problem for the interpreter; controls also take it everywhere.
        variants: further keyword arguments under which bits must be the same, with the bucket they take.
    """

    name: str
    public: Call
    device: str
    cases: Mapping[str, Callable[[Style], Problem]]
    small: Callable[[Style], Problem]
    controls: tuple[Control, ...]
    variants: Sequence[tuple[int, Mapping[str, Any]]] = ()


def floats(key: int, shape: tuple[int, ...], style: Style, *, negated: bool = False, dtype: Any = jnp.float32) -> Any:
    """Random numbers of a style.

    Under CANCEL the second half of the last axis repeats the first, with the other sign where `negated`, so that sums
    of products of one of each cancel.
    """
    first, second = jax.random.split(jax.random.key(key))
    x = jax.random.normal(first, shape, jnp.float32)
    if style is Style.SPREAD:
        x = x * 2.0 ** jax.random.randint(second, shape, -12, 13).astype(jnp.float32)
    elif style is Style.POSITIVE:
        x = jnp.abs(x) + 0.5
    elif style is Style.CANCEL:
        half = x[..., : shape[-1] // 2]
        x = jnp.concatenate([half, -half if negated else half], -1)
    return x.astype(dtype)


def selected(rows: Sequence[int], bucket: int) -> dict[str, NDArray[np.int32]]:
    """Which row stands at each place of a bucket, and how many matter."""
    select = np.zeros(bucket, np.int32)
    select[: len(rows)] = rows
    return {"select": select, "count": np.array(len(rows), np.int32)}


def placed(x: jax.Array, arranged: Any) -> jax.Array:
    """The arranged rows; those that do not matter are NaN."""
    live = jnp.arange(len(arranged["select"])) < arranged["count"]
    return jnp.where(live.reshape(-1, *[1] * (x.ndim - 1)), x[arranged["select"]], jnp.nan)


def wide(x: Any) -> NDArray[np.float64]:
    """On the host, in float64."""
    return np.asarray(x).astype(np.float64)
