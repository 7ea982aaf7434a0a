"""An LFM2, dense or with experts, whose equal layers lie in stacks, by the operators of one route.

Kernels are written out layer after layer (why: see layer_loop). For reference operators the layers are cut into
patterns that repeat; each is a scan whose step runs the pattern once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.kernels.conv_step import ConvState
from tfjax.kernels.embed_rows import embed_rows
from tfjax.kernels.layer_matmul import layer_matmul
from tfjax.kernels.rope_write import Pools
from tfjax.kernels.routes import Route, Unsupported
from tfjax.kernels.short_conv import RING
from tfjax.kernels.sum_norm import sum_norm
from tfjax.kernels.window_attention import rows_of_block
from tfjax.models.family import Stacked
from tfjax.models.layer_loop import all_read
from tfjax.models.layer_patterns import Repeat, one_by_one, repeats
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.lfm2_layer import Shared, Stream, layer_step, shared_by_layers
from tfjax.models.lfm2_stacks import Kind, Lfm2Stacks, Number, kinds, numbers, shapes, sources, unstacked
from tfjax.models.rows import ConvCache, Forward, LayerCache, Rows, tapped
from tfjax.models.stacked_pools import by_layer, empty_pools, flat_pools


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class MixedCache:
    """The cache of all layers. Iterating gives that of each: of those that attend first, then of the convolutions.

    Shapes: pools [A, P, K, PAGE_ROWS, H]; rings [C, lanes, RING, D], tails [C, P, taps - 1, D].
    """

    pools: Pools
    conv: ConvState

    def __iter__(self) -> Iterator[LayerCache | ConvCache]:
        for keys, values in zip(*self.pools, strict=True):
            yield LayerCache(keys, values)
        for ring, tails in zip(*self.conv, strict=True):
            yield ConvCache(ring, tails)


class StackedLfm2(nnx.Module):
    """`tfjax.models.lfm2.Lfm2` in this form, by the operators of one route.

    Raises:
        Unsupported: for convolutions with biases, which these operators do not add.
    """

    def __init__(self, config: Lfm2Config, dtype: jnp.dtype, route: Route):
        if config.conv_bias:
            raise Unsupported("an LFM2 whose convolutions have biases (conv_bias), which the kernels do not add")
        self.config, self.route = config, route
        found = shapes(config)

        def zeros(shape: tuple[int, ...] | None, dtype: jnp.dtype = dtype) -> nnx.Param[jax.Array] | None:
            return None if shape is None else nnx.Param(jnp.zeros(shape, dtype))

        self.embedding = nnx.Param(jnp.zeros((config.vocab, config.hidden), dtype))
        self.head = None if config.tied else nnx.Param(jnp.zeros((config.vocab, config.hidden), dtype))
        self.operator_norm, self.ffn_norm = zeros(found["operator_norm"]), zeros(found["ffn_norm"])
        self.out = zeros(found["out"])
        self.qkv, self.q_norm = zeros(found.get("qkv")), zeros(found.get("q_norm"))
        self.k_norm = zeros(found.get("k_norm"))
        self.bcx, self.taps = zeros(found.get("bcx")), zeros(found.get("taps"))
        self.gate_up, self.down = zeros(found.get("gate_up")), zeros(found.get("down"))
        self.router = zeros(found.get("router"))
        self.router_bias = zeros(found.get("router_bias"), jnp.dtype(jnp.float32))
        self.expert_gate_up, self.expert_down = zeros(found.get("expert_gate_up")), zeros(found.get("expert_down"))

    @property
    def head_weight(self) -> jax.Array:
        """Shape: [V, D]."""
        return self.embedding[...] if self.head is None else self.head[...]

    @property
    def weights(self) -> Lfm2Stacks:
        """The parameters by name; nothing is copied."""
        parameters = {name: getattr(self, name) for name in Lfm2Stacks._fields if name != "head"}
        found: dict[str, Any] = {name: value if value is None else value[...] for name, value in parameters.items()}
        return Lfm2Stacks(**found, head=self.head_weight)

    def __call__(self, cache: MixedCache, rows: Rows, *, tile_rows: int, taps: tuple[int, ...] = ()) -> Forward:
        """One forward of the rows. `taps` are layers whose features are wanted. Shapes of the cache: `MixedCache`."""
        done = forward(
            self.config,
            self.weights,
            replace(cache, pools=flat_pools(cache.pools)),
            rows,
            tile_rows=tile_rows,
            route=self.route,
            taps=taps,
        )
        return done._replace(cache=replace(done.cache, pools=by_layer(done.cache.pools, cache.pools)))

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Shapes: [R, D] -> float32 [R, V]."""
        head, count = self.head_weight[None], jnp.int32(len(hidden))
        return layer_matmul(hidden, head, jnp.int32(0), count, split=1, route=self.route)[0]


def empty_cache(config: Lfm2Config, pages: int, page_rows: int, lanes: int, dtype: jnp.dtype) -> MixedCache:
    """A zeroed cache of `pages` pages and `lanes` lanes, page 0 and the last lane being scratch."""
    attending = sum(config.attends)
    convolving = config.layers - attending
    attended = empty_pools(attending, pages, config.kv_heads, page_rows, config.head_dim, dtype)
    rings, tails = (convolving, lanes, RING, config.hidden), (convolving, pages, config.taps - 1, config.hidden)

    def zeros(shape: tuple[int, ...]) -> jax.Array:
        return jnp.zeros(shape, dtype)

    return MixedCache(attended, ConvState(zeros(rings), zeros(tails)))


def tile_rows(config: Lfm2Config) -> int:
    """Rows of a block of attention. Taller tiles would be cut into such blocks, lower ones leave them partly empty."""
    return rows_of_block(config.heads // config.kv_heads)


def forward(
    config: Lfm2Config,
    weights: Lfm2Stacks,
    cache: MixedCache,
    rows: Rows,
    *,
    tile_rows: int,
    route: Route,
    taps: tuple[int, ...] = (),
) -> Forward:
    """One forward. In the cache the pages of all attending layers lie one layer's after another's.

    Raises:
        Unsupported: for sizes that the route cannot take.
    """
    shared = shared_by_layers(config, rows, tile_rows=tile_rows)
    x = embed_rows(weights.embedding, rows.token, shared.used, route=route)
    nothing = jnp.zeros((0, *x.shape), jnp.float32)
    first = jnp.int32(0)
    x, h = sum_norm(nothing, x, weights.operator_norm, first, shared.used, eps=config.norm_eps, route=route)
    stream = Stream(x, h, cache.pools, cache.conv)
    of_kind = kinds(config)
    layers = Layers(config, weights, shared, route, numbers(of_kind), taps)
    after: dict[int, jax.Array] = {}
    begun = 0
    for run in repeats(of_kind) if route is Route.REFERENCE else one_by_one(of_kind):
        stream, found = layers.run(run, begun, stream)
        after |= found
        begun += run.layers
    stream = all_read(stream)
    features = tapped([after[layer] for layer in taps], range(len(taps)))
    return Forward(stream.h, MixedCache(stream.pools, stream.conv), features)


class Layers(NamedTuple):
    """What runs the layers of one forward.

    Attributes:
        numbers: of every layer.
        taps: layers whose x is wanted.
    """

    config: Lfm2Config
    weights: Lfm2Stacks
    shared: Shared
    route: Route
    numbers: tuple[Number, ...]
    taps: tuple[int, ...]

    def run(self, run: Repeat[Kind], begun: int, stream: Stream) -> tuple[Stream, dict[int, jax.Array]]:
        """The layers of one run, the first of which is layer `begun`, and x after those that are tapped."""
        size = len(run.pattern)
        places = sorted({(tap - begun) % size for tap in self.taps if begun <= tap < begun + run.layers})

        def step(stream: Stream, turn: jax.Array | None) -> tuple[Stream, list[jax.Array]]:
            told = []
            for place, kind in enumerate(run.pattern):
                number = self.number(begun + place, size, turn)
                stream = layer_step(
                    stream, self.weights, self.shared, number, config=self.config, kind=kind, route=self.route
                )
                told += [stream.x] if place in places else []
            return stream, told

        if run.times == 1:
            stream, told = step(stream, None)
            return stream, {begun + place: x for place, x in zip(places, told, strict=True)}
        stream, told = jax.lax.scan(step, stream, jnp.arange(run.times, dtype=jnp.int32))
        after = dict(zip(places, told, strict=True))
        return stream, {begun + turn * size + place: after[place][turn] for turn in range(run.times) for place in after}

    def number(self, layer: int, size: int, turn: jax.Array | None) -> Number:
        """Of a layer of the pattern's first turn, or of that which stands there `turn` patterns later."""
        first = self.numbers[layer]
        if turn is None:
            return Number(*(jnp.int32(start) for start in first))
        later = self.numbers[layer + size]
        return Number(*(start + turn * (end - start) for start, end in zip(first, later, strict=True)))


STACKED: Stacked[Lfm2Config] = Stacked(
    build=StackedLfm2, sources=sources, empty_cache=empty_cache, tile_rows=tile_rows, unstacked=unstacked
)
