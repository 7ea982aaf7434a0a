"""A window of a Llama-3-8B shape with random weights: wall time, time of each kernel, and rows held to their bits."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.device_kernels import BYTES_PER_SECOND, measured_once
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.kernels.routes import Route
from tfjax.kernels.specs import SPECS, Spec
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.llama import LlamaConfig
from tfjax.models.rows import Rows
from tfjax.models.stacked_llama import StackedWeights, empty_pools, forward, logits

CONTEXT, CAPACITY, TILE_ROWS, RUNS = 512, 1024, 16, 20
CASES = ((1, 8), (16, 16), (64, 64))
"""Rows of the window, and rows of the bucket that it is padded to."""


def measure_windows(layers: int) -> list[dict[str, Any]]:
    """Prints a line per row count, then where the time of each goes."""
    spec = SPECS["Llama-3-8B"]
    config = config_of(spec, layers)
    weights = random_weights(config)
    read = sum(x.nbytes for name, x in weights._asdict().items() if name != "embedding")
    floor = read / BYTES_PER_SECOND * 1e3
    print(
        f"{spec.name} shape, {layers} layers, random weights, context {CONTEXT}: {read / 1e9:.1f} GB, "
        f"floor {floor:.2f} ms"
    )
    found, kept = [], {}
    step = program(config)
    for rows, bucket in CASES:
        arguments = window_of(config, rows, bucket)
        pools = empty_pools(config, 1 + CAPACITY // PAGE_ROWS, jnp.dtype(jnp.bfloat16))
        start = time.perf_counter()
        logit, pools = jax.block_until_ready(step(weights, pools, *arguments))
        first_s = time.perf_counter() - start
        kept[rows] = np.asarray(logit)[:rows]
        wall = []
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(RUNS):
                logit, pools = step(weights, pools, *arguments)
            jax.block_until_ready(logit)
            wall.append((time.perf_counter() - start) / RUNS * 1e3)
        row = {"rows": rows, "bucket": bucket, "ms": min(wall), "floor_ms": floor, "first_call_s": first_s}
        row["gb_per_s"] = read / min(wall) / 1e6
        print(
            f"{rows:>3} rows in {bucket:>3}: {min(wall):.2f} ms, {row['gb_per_s']:.0f} GB/s, "
            f"first call {first_s:.1f} s",
            flush=True,
        )
        row["kernels"] = _kernels(functools.partial(step, weights, pools, *arguments))
        found.append(row)
    equal = {
        "one_row_equals_first_of_16": bool((kept[1] == kept[16][:1]).all()),
        "16_rows_equal_first_of_64": bool((kept[16] == kept[64][:16]).all()),
    }
    print(f"bits of the logits: {equal}")
    found.append(equal)
    return found


def _kernels(window: Callable[[], Any]) -> dict[str, Any]:
    """Sums by kernel name, and how many launches."""
    try:
        kernels = measured_once(window)
    except Exception as error:  # noqa: BLE001 - the wall times stand without it
        print(f"    no kernel times: {type(error).__name__}: {str(error)[:200]}")
        return {}
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for name, us in kernels:
        short = name.split("_mosaic")[0][:28]
        total[short] += us
        count[short] += 1
    told = [f"{name} {count[name]} x {us / count[name]:.1f} us" for name, us in total.most_common(9)]
    print(f"    {len(kernels)} kernels, {sum(total.values()) / 1e3:.2f} ms: {'; '.join(told)}", flush=True)
    return {name: {"launches": count[name], "us": us} for name, us in total.items()}


def config_of(spec: Spec, layers: int) -> LlamaConfig:
    """A Llama of these sizes."""
    return LlamaConfig(
        vocab=spec.vocab,
        hidden=spec.hidden,
        inner=spec.inner,
        layers=layers,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        norm_eps=1e-5,
        rope=RopeConfig(500_000.0),
        context=CAPACITY,
        tied=False,
        attention_bias=False,
        mlp_bias=False,
    )


def random_weights(config: LlamaConfig) -> StackedWeights:
    """Made on the device."""
    count, size = config.layers, config.hidden
    width = config.heads * config.head_dim
    kv_width = config.kv_heads * config.head_dim
    shapes = StackedWeights(
        embedding=(config.vocab, size),
        attention_norm=(count + 1, size),
        qkv=(count, width + 2 * kv_width, size),
        out=(count, size, width),
        mlp_norm=(count, size),
        gate_up=(count, 2 * config.inner, size),
        down=(count, size, config.inner),
        head=(1, config.vocab, size),
    )

    def layer(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.normal(key, shape, jnp.bfloat16) * jnp.bfloat16(0.02)

    def make(seed: int, shape: tuple[int, ...]) -> jax.Array:
        keys = jax.random.split(jax.random.key(seed), shape[0])
        # One layer at a time, so that the random numbers need no memory of their own.
        made = jax.jit(lambda keys: jax.lax.map(lambda key: layer(key, shape[1:]), keys))
        if len(shape) == 2 and shape[0] > count + 1:
            return jax.jit(lambda key: layer(key, shape))(keys[0])
        made_stack: jax.Array = made(keys)
        return made_stack + 1 if len(shape) == 2 else made_stack

    return StackedWeights(*(make(seed, shape) for seed, shape in enumerate(shapes)))


def window_of(config: LlamaConfig, rows: int, bucket: int) -> tuple[Rows, jax.Array]:
    """`rows` positions of one stream after CONTEXT others; the rest of the bucket is scratch."""
    token = np.random.default_rng(0).integers(0, config.vocab, CASES[-1][0]).astype(np.int32)
    position, lane = np.zeros(bucket, np.int32), np.ones(bucket, np.int32)
    position[:rows], lane[:rows] = CONTEXT + np.arange(rows), 0
    tile = min(TILE_ROWS, bucket)
    used = -(-rows // tile)
    start, owner, last = np.zeros((3, bucket), np.int32)
    start[:used] = np.arange(used) * tile
    last[:used] = CONTEXT + np.minimum(start[:used] + tile, rows) - 1
    pages = CAPACITY // PAGE_ROWS
    table = np.stack([1 + np.random.default_rng(1).permutation(pages), np.zeros(pages)]).astype(np.int32)
    padded = np.zeros(bucket, np.int32)
    padded[:rows] = token[:rows]
    tiles = Tiles(*(jnp.asarray(x) for x in (np.int32(used), start, owner, last)))
    shared = Rows(jnp.asarray(padded), jnp.asarray(lane), jnp.asarray(position), tiles, jnp.asarray(table))
    return shared, jnp.int32(rows)


def program(config: LlamaConfig) -> Callable[..., Any]:
    """One window, jitted: weights, pools (donated), rows and their count to logits and pools."""

    def step(weights: StackedWeights, pools: Any, rows: Rows, count: jax.Array) -> Any:
        done = forward(config, weights, pools, rows, count, tile_rows=TILE_ROWS, route=Route.PALLAS_GPU)
        return logits(weights, done.hidden, count, route=Route.PALLAS_GPU), done.cache

    return jax.jit(step, donate_argnums=1)
