"""A layer of experts of a published size, beside the time that memory needs for the experts touched, and XLA's."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.blocks import Blocks
from benchmarks.device_kernels import BYTES_PER_SECOND, measured, random_matrices, tried
from tfjax.kernels.experts import Experts, experts_mlp, in_order_of_rank
from tfjax.kernels.gpu.grouped_matmul import grouped_glu, grouped_matmul
from tfjax.kernels.gpu.plans import Form, Plan, grouped_plan_of, padded_rows
from tfjax.kernels.grouped_matmul import gathered, tiles_of
from tfjax.kernels.specs import SPECS, Spec

LAYERS = 3
"""Taken in turn, so that weights come from memory and not from the cache."""

ROWS = (1, 16, 64)
"""Of a window, each in the server's bucket."""
ROWS_S = 30.0


def measure_experts(blocks: Blocks, spec: Spec = SPECS["LFM2.5-24B-A2B"]) -> None:
    """Prints a line per row count, then one per tile that was tried."""
    gate_up = random_matrices(1, (LAYERS * spec.experts, 2 * spec.expert_inner, spec.hidden))
    down = random_matrices(2, (LAYERS * spec.experts, spec.hidden, spec.expert_inner))
    print(
        f"{spec.name}: {spec.experts} experts of {spec.hidden} x {spec.expert_inner}, {spec.picked} a row; us a layer"
    )
    for rows in ROWS:
        blocks.run(f"experts, {rows} rows", ROWS_S, lambda: _measured(spec, rows, gate_up, down))  # noqa: B023


def _measured(spec: Spec, rows: int, gate_up: jax.Array, down: jax.Array) -> dict[str, Any]:
    choice = _choice(spec, rows)
    touched = statistics.mean(len(np.unique(layer[:rows])) for layer in choice)
    size = 2 * spec.hidden * spec.expert_inner
    row: dict[str, Any] = {"rows": rows, "experts_touched": touched}
    row["floor_us"] = floor = {
        name: touched * factor * size / BYTES_PER_SECOND * 1e6 for name, factor in (("glu", 2), ("down", 1))
    }
    x = random_matrices(3, (1, padded_rows(rows), spec.hidden))[0]
    arguments = (x, jnp.asarray(choice), gate_up, down, jnp.int32(rows))
    row["plans_us"] = {}
    for plans in _plans(spec, rows):
        row["plans_us"][_label(plans)] = tried(lambda: _ours(spec, plans, arguments))  # noqa: B023 - called at once
    if rows == ROWS[0]:
        row["every_kernel"] = tried(lambda: _every_kernel(spec, arguments))
    row["xla_us"] = tried(lambda: _xla(spec, arguments))
    print(
        f"{rows:>3} rows, {touched:.1f} experts: floor {floor['glu']:.1f} + {floor['down']:.1f}, "
        f"XLA's experts {row['xla_us']}",
        flush=True,
    )
    for label, times in row["plans_us"].items():
        print(f"    {label}: {times}", flush=True)
    return row


def _choice(spec: Spec, rows: int) -> Any:
    """Of every layer and row of the bucket. Shape: int32 [layers, bucket, picked]."""
    random = np.random.default_rng(rows)
    one = [[random.permutation(spec.experts)[: spec.picked] for _ in range(padded_rows(rows))] for _ in range(LAYERS)]
    return np.array(one, np.int32)


def _plans(spec: Spec, rows: int) -> list[tuple[Plan, Plan]]:
    """Tiles of the gated product and of the one after it; the tuned ones first."""
    tile = padded_rows(rows)
    return [
        (
            grouped_plan_of(spec.hidden, spec.expert_inner, tile),
            grouped_plan_of(spec.expert_inner, spec.hidden, tile),
        ),
        (Plan(Form.WEIGHTS, tile, 128, 64, 4), Plan(Form.WEIGHTS, tile, 128, 64, 6)),
        (Plan(Form.WEIGHTS, tile, 64, 128, 4), Plan(Form.WEIGHTS, tile, 64, 128, 6)),
        (Plan(Form.WEIGHTS, tile, 64, 64, 4), Plan(Form.WEIGHTS, tile, 64, 64, 10)),
    ]


def _label(plans: tuple[Plan, Plan]) -> str:
    return ", ".join(f"{plan.rows}x{plan.columns}x{plan.inner} {plan.stages}" for plan in plans)


def _layers(spec: Spec, plans: tuple[Plan | None, Plan | None]) -> Callable[..., jax.Array]:
    def all_layers(x: jax.Array, choice: jax.Array, gate_up: jax.Array, down: jax.Array, count: jax.Array) -> jax.Array:
        weight = jnp.full(choice.shape[1:], 0.25, jnp.float32)

        def one(x: jax.Array, layer: jax.Array) -> tuple[jax.Array, None]:
            tiles = tiles_of(choice[layer], count, experts=spec.experts, picked=spec.picked)
            first = layer * spec.experts
            inner = grouped_glu(gathered(x, tiles), gate_up, first, tiles, plan=plans[0])
            out = grouped_matmul(inner, down, first, tiles, plan=plans[1])
            return in_order_of_rank(out[tiles.place], weight).astype(x.dtype), None

        return jax.lax.scan(one, x, jnp.arange(LAYERS, dtype=jnp.int32))[0]

    return jax.jit(all_layers)


def _ours(spec: Spec, plans: tuple[Plan, Plan], arguments: Any) -> dict[str, float]:
    function = _layers(spec, plans)
    kernels = [kernel for _ in range(2) for kernel in measured(function, *arguments)]
    times = {
        name: statistics.median(us for kernel, us in kernels if f"grouped_{name}" in kernel)
        for name in ("glu", "matmul")
    }
    times["all"] = sum(us for _, us in kernels) / 2 / LAYERS
    return {name: round(us, 1) for name, us in times.items()}


def _every_kernel(spec: Spec, arguments: Any) -> dict[str, float]:
    """Launches and microseconds by name, so that it shows what surrounds the products."""
    total: dict[str, list[float]] = {}
    for name, us in measured(_layers(spec, (None, None)), *arguments):
        total.setdefault(name.split("_mosaic")[0][:40], []).append(us)
    told = {f"{name} x{len(times)}": round(sum(times), 1) for name, times in total.items()}
    print(f"    one row, {LAYERS} layers: {told}", flush=True)
    return told


def _xla(spec: Spec, arguments: Any) -> float:
    """All kernels of XLA's experts, a layer."""
    x, choice, gate_up, down, count = arguments
    x, choice = x[: int(count)], choice[:, : int(count)]
    own = [
        Experts(*(w[layer * spec.experts : (layer + 1) * spec.experts] for w in (gate_up, down)))
        for layer in range(LAYERS)
    ]
    weight = jnp.full(choice.shape[1:], 0.25, jnp.float32)

    @jax.jit
    def all_layers(x: jax.Array, choice: jax.Array, own: list[Experts]) -> jax.Array:
        for layer, experts in enumerate(own):
            x = experts_mlp(x, choice[layer], weight, experts)
        return x

    return round(sum(us for _, us in measured(all_layers, x, choice, own)) / LAYERS, 1)
