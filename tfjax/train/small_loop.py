"""The training loop: rows to steps to checkpoints, the device always one dispatch ahead of the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from tfjax.train.small_data import rows_of_steps

type Curve = list[dict[str, float]]


class Data(Protocol):
    """A named tuple of arrays whose `token` has a row for each row of the others."""

    @property
    def token(self) -> Any: ...


class Metrics(Protocol):
    """A named tuple of numbers for each step of a dispatch; one of them is `loss`."""

    def _asdict(self) -> dict[str, Any]: ...


type Step[S, M, D: Data] = Callable[[S, M, D, jax.Array], tuple[S, Metrics]]
"""Takes several steps: (state, models, all rows, row numbers int32 [steps, batch]) -> (state, metrics)."""


class Keeper(Protocol):
    """Where states are kept."""

    def restore(self, like: Any) -> tuple[int, Any, Curve] | None: ...

    def save(self, step: int, state: Any, curve: Curve) -> None: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How far and in what strides.

    Attributes:
        steps: in all; a multiple of `steps_per_call`.
        steps_per_call: steps of one dispatch; the loss curve has a point for each.
        save_every: steps between checkpoints; a multiple of `steps_per_call`.
        batch: rows of a step.
        seed: of the rows' order.
        limit_s: seconds after which the run saves and stops, to be taken up again; None for no limit. Each call takes
            at least one dispatch.
    """

    steps: int
    steps_per_call: int
    save_every: int
    batch: int
    seed: int
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome[S]:
    """How a run ended.

    Attributes:
        step: steps that were taken, earlier runs included.
        resumed_from: where this run took over, 0 at the beginning.
        curve: points with `step`, `loss` and the other metrics, each a mean over one dispatch.
    """

    state: S
    step: int
    resumed_from: int
    curve: Curve


def train[S, M, D: Data](
    step: Step[S, M, D],
    state: S,
    models: M,
    data: D,
    pace: Pace,
    keeper: Keeper,
    report: Callable[[dict[str, float]], None],
    clock: Callable[[], float] = time.monotonic,
) -> Outcome[S]:
    """Train from the last checkpoint, or from `state` where there is none, up to the last step or the limit."""
    kept = keeper.restore(state)
    done, state, curve = (0, state, []) if kept is None else kept
    resumed_from = done
    on_device = jax.tree.map(jnp.asarray, data)
    stop_s = None if pace.limit_s is None else clock() + pace.limit_s
    unread: tuple[int, Metrics] | None = None
    while done < pace.steps:
        rows = rows_of_steps(pace.seed, len(data.token), pace.batch, done, pace.steps_per_call)
        state, metrics = step(state, models, on_device, jnp.asarray(rows))
        done += pace.steps_per_call
        _read(unread, curve, report)
        unread = done, metrics
        if done % pace.save_every == 0 and done < pace.steps:
            _read(unread, curve, report)
            unread = None
            keeper.save(done, state, curve)
        if stop_s is not None and clock() >= stop_s:
            break
    _read(unread, curve, report)
    keeper.save(done, state, curve)
    return Outcome(state, done, resumed_from, curve)


def _read(unread: tuple[int, Metrics] | None, curve: Curve, report: Callable[[dict[str, float]], None]) -> None:
    """Wait for a dispatch's metrics, and keep their means.

    Raises:
        FloatingPointError: the loss is no longer a number.
    """
    if unread is None:
        return
    done, metrics = unread
    means = {name: float(np.mean(value)) for name, value in jax.device_get(metrics._asdict()).items()}
    if not np.isfinite(means["loss"]):
        raise FloatingPointError(
            f"the loss is {means['loss']} at step {done}; take a lower --learning-rate (and another --output)"
        )
    point = {"step": float(done), **{name: round(value, 5) for name, value in means.items()}}
    curve.append(point)
    report(point)
