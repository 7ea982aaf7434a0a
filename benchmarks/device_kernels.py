"""Products of published shapes by CUPTI, beside the time that memory needs and XLA's product in the same run.

The weights of several layers are used in turn, so that they come from memory and not from the cache.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.blocks import Blocks
from tfjax.kernels.gpu.layer_matmul import layer_matmul
from tfjax.kernels.gpu.plans import Form, Plan, plan_of, split_of
from tfjax.kernels.gpu.sum_norm import sum_norm

BYTES_PER_SECOND = 4.3e12
"""What a copy on an H200 reaches."""

SHAPES = ((8192, 28672, 2), (4096, 28672, 2), (14336, 4096, 4), (4096, 6144, 8), (4096, 4096, 8))
"""Inner size, columns, and how many layers stand in the stack."""

ROWS = (16, 64)
PRODUCT_S, NORMS_S = 25.0, 10.0


def measured(function: Callable[..., Any], *arguments: Any) -> list[tuple[str, float]]:
    """Names and microseconds of the device kernels of one call of a jitted function, after a first call."""
    from jax.experimental.mosaic.gpu import profiler

    _, kernels = profiler.measure(function, aggregate=False)(*arguments)
    return [(name, 1000 * milliseconds) for name, milliseconds in kernels or []]


def measured_once(work: Callable[[], Any]) -> list[tuple[str, float]]:
    """The same of work that was done before and that cannot be repeated with the same arguments."""
    from jax.experimental.mosaic.gpu import profiler

    module: Any = profiler
    extension = module.mosaic_gpu_lib._mosaic_gpu_ext
    extension._cupti_init()
    try:
        jax.block_until_ready(work())
    finally:
        kernels = extension._cupti_get_timings(True)
    return [(name, 1000 * milliseconds) for name, milliseconds in kernels]


def measure_kernels(blocks: Blocks, shapes: Sequence[tuple[int, int, int]] = SHAPES) -> None:
    """Prints a line per shape and row count."""
    print(f"{'inner x columns':>15} rows   floor    ours of floor     XLA  tiles (others), us")
    for inner, columns, layers in shapes:
        blocks.run(f"{inner}x{columns}", PRODUCT_S, lambda: _products(inner, columns, layers))  # noqa: B023
    blocks.run("norms", NORMS_S, _norms)


def _products(inner: int, columns: int, layers: int) -> list[dict[str, Any]]:
    weight = random_matrices(1, (layers, columns, inner))
    singles = [weight[layer] for layer in range(layers)]
    found = []
    for rows in ROWS:
        x = random_matrices(2, (rows, inner))
        row: dict[str, Any] = {"inner": inner, "columns": columns, "rows": rows, "split": split_of(inner, columns)}
        row["floor_us"] = 2 * inner * columns / BYTES_PER_SECOND * 1e6
        row["xla_us"] = tried(lambda: _xla(x, singles))  # noqa: B023 - called at once
        times = {}
        for plan in _plans(inner, columns, rows):
            label = f"{plan.form} {plan.columns}x{plan.inner} {plan.stages}"
            times[label] = tried(lambda: _ours(x, weight, plan))  # noqa: B023 - called at once
        row["plans_us"] = times
        tuned = next(iter(times))
        ours = times[tuned]
        others = ", ".join(f"{name} {_us(value)}" for name, value in times.items() if name != tuned)
        ratio = f"{ours / row['floor_us']:8.2f}" if isinstance(ours, float) else "       -"
        print(
            f"{inner:>7}x{columns:<7} {rows:>4} {row['floor_us']:7.1f} {_us(ours):>7} {ratio} "
            f"{_us(row['xla_us']):>7}  {tuned} ({others})",
            flush=True,
        )
        found.append(row)
    return found


def _us(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)[:60]


def tried(work: Callable[[], Any]) -> Any:
    """What the work gives, or what went wrong."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - one form that fails does not stop the table
        return f"{type(error).__name__}: {error}"[:200]


def random_matrices(seed: int, shape: tuple[int, ...]) -> jax.Array:
    """Of the size of weights, bfloat16, made on the device one matrix at a time."""
    keys = jax.random.split(jax.random.key(seed), shape[0])
    made: jax.Array = jax.jit(lambda keys: jax.lax.map(lambda key: _matrix(key, shape[1:]), keys))(keys)
    return made


def _matrix(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    made: jax.Array = jax.random.normal(key, shape, jnp.bfloat16) * jnp.bfloat16(0.02)
    return made


def _plans(inner: int, columns: int, rows: int) -> list[Plan]:
    """The tuned tiles first, then some others."""
    others = [
        Plan(Form.WEIGHTS, rows, 128, 64, 6),
        Plan(Form.WEIGHTS, rows, 64, 128, 6),
        Plan(Form.MMA, rows, 64, 64, 6),
    ]
    if columns >= 28672:
        others[1] = Plan(Form.WEIGHTS, rows, 256, 64, 4)
    if rows == 64:
        others.append(Plan(Form.ROWS, rows, 128, 64, 5))
    return list(dict.fromkeys([plan_of(inner, columns, rows), *others]))


def _ours(x: jax.Array, weight: jax.Array, plan: Plan) -> float:
    split = split_of(weight.shape[2], weight.shape[1])

    def all_layers(x: jax.Array, weight: jax.Array) -> jax.Array:
        def one(total: jax.Array, layer: jax.Array) -> tuple[jax.Array, None]:
            parts = layer_matmul(x, weight, layer, jnp.int32(len(x)), split=split, plan=plan)
            return total + parts[0, 0, 0], None

        layers = jnp.tile(jnp.arange(len(weight), dtype=jnp.int32), 3)
        total: jax.Array = jax.lax.scan(one, jnp.float32(0), layers)[0]
        return total

    kernels = [us for name, us in measured(jax.jit(all_layers), x, weight) if "matmul" in name]
    return statistics.median(kernels)


def _xla(x: jax.Array, weights: Sequence[jax.Array]) -> float:
    """All kernels of XLA's product of separate weights, its own split sum included, a layer."""

    def all_layers(x: jax.Array, weights: Sequence[jax.Array]) -> list[jax.Array]:
        form = (((1,), (1,)), ((), ()))
        return [jax.lax.dot_general(x, w, form, preferred_element_type=jnp.float32) for w in weights]

    times = [sum(us for _, us in measured(jax.jit(all_layers), x, weights)) for _ in range(3)]
    return min(times) / len(weights)


def _norms() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for rows in ROWS:
        parts, x = random_matrices(3, (4, rows, 4096)).astype(jnp.float32), random_matrices(4, (rows, 4096))
        weight = random_matrices(5, (2, 4096))
        function = jax.jit(
            lambda parts, x, weight: sum_norm(parts, x, weight, jnp.int32(1), jnp.int32(len(x)), eps=1e-5)
        )
        us = tried(lambda: _named(function, "sum_norm", parts, x, weight))  # noqa: B023 - called at once
        print(f"sum of 4 parts + residual + norm, 4096, {rows} rows: {_us(us)} us", flush=True)
        found.append({"kernel": "sum_norm 4096 x 4", "rows": rows, "us": us})
    return found


def _named(function: Callable[..., Any], name: str, *arguments: Any) -> float:
    times = [us for _ in range(5) for kernel, us in measured(function, *arguments) if name in kernel]
    return statistics.median(times)
