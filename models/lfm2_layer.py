"""One layer of a stacked LFM2: an operator and a feed-forward block, each by kernels that take a layer's number."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfjax.kernels.choose_experts import choose_experts
from tfjax.kernels.conv_step import ConvPlaces, ConvState, conv_step
from tfjax.kernels.expert_sum import expert_sum
from tfjax.kernels.gpu.plans import split_of
from tfjax.kernels.grouped_matmul import gathered, grouped_glu, grouped_matmul, tiles_of
from tfjax.kernels.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.rope_write import HeadNorm, Heads, Places, Pools, Turns, rope_write, turns
from tfjax.kernels.routes import Route
from tfjax.kernels.sum_norm import sum_norm
from tfjax.kernels.window_attention import Window, spare_rows, window, window_attention
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.lfm2_stacks import Kind, Lfm2Stacks, Number
from tfjax.models.rows import Rows


class Stream(NamedTuple):
    """What goes from layer to layer. Shapes: x and its norm h [R, D]; the pages of a pool lie layer after layer."""

    x: jax.Array
    h: jax.Array
    pools: Pools
    conv: ConvState


class Shared(NamedTuple):
    """What all layers of one forward take alike.

    Attributes:
        used: int32 [], how many of the rows matter.
        page, slot: int32 [R], where each row's key and value go in the pages of a layer.
        places: of the rows, for convolutions.
    """

    used: jax.Array
    turned: Turns
    window: Window
    page: jax.Array
    slot: jax.Array
    places: ConvPlaces


def shared_by_layers(config: Lfm2Config, rows: Rows, *, tile_rows: int) -> Shared:
    """Laid out once for a forward."""
    turned = turns(rows.position, jnp.asarray(config.rope.inverse_frequency(config.head_dim)))
    group = config.heads // config.kv_heads
    shared = window(rows.position, rows.tiles, rows.page_table, tile_rows=tile_rows, group=group)
    places = ConvPlaces(rows.lane, rows.position, rows.page_table)
    return Shared(rows.used, turned, shared, rows.page, rows.slot, places)


def layer_step(
    stream: Stream, weights: Lfm2Stacks, shared: Shared, number: Number, *, config: Lfm2Config, kind: Kind, route: Route
) -> Stream:
    """One layer. Equal operators share one trace, and their kernels one compilation; so do equal blocks."""
    stream = _operator(stream, weights, shared, number, config=config, attends=kind.attends, route=route)
    done: Stream = _block(stream, weights, shared, number, config=config, experts=kind.experts, route=route)
    return done


@functools.partial(jax.jit, static_argnames=("config", "attends", "route"))
def _operator(
    stream: Stream,
    weights: Lfm2Stacks,
    shared: Shared,
    number: Number,
    *,
    config: Lfm2Config,
    attends: bool,
    route: Route,
) -> Stream:
    layer = _Layer(config, weights, shared, number, route)
    out, stream = layer.attention(stream) if attends else layer.convolution(stream)
    return layer.added(out, stream, weights.ffn_norm, number.layer)


@functools.partial(jax.jit, static_argnames=("config", "experts", "route"))
def _block(
    stream: Stream,
    weights: Lfm2Stacks,
    shared: Shared,
    number: Number,
    *,
    config: Lfm2Config,
    experts: bool,
    route: Route,
) -> Stream:
    layer = _Layer(config, weights, shared, number, route)
    return layer.experts(stream) if experts else layer.dense(stream)


class _Layer(NamedTuple):
    """The parts of a layer. An operator gives float32 parts [split, R, D] that are still to be added."""

    config: Lfm2Config
    weights: Lfm2Stacks
    shared: Shared
    number: Number
    route: Route

    def product(self, x: jax.Array, stack: jax.Array | None, number: jax.Array) -> jax.Array:
        assert stack is not None
        split = split_of(stack.shape[2], stack.shape[1])
        return layer_matmul(x, stack, number, self.shared.used, split=split, route=self.route)

    def added(self, parts: jax.Array, stream: Stream, norm: jax.Array, number: jax.Array) -> Stream:
        """x with the parts, and its next norm."""
        count, eps = self.shared.used, self.config.norm_eps
        x, h = sum_norm(parts, stream.x, norm, number, count, eps=eps, route=self.route)
        return stream._replace(x=x, h=h)

    def attention(self, stream: Stream) -> tuple[jax.Array, Stream]:
        c, w, number, shared = self.config, self.weights, self.number.operator, self.shared
        assert w.q_norm is not None
        assert w.k_norm is not None
        heads = Heads(c.heads, c.kv_heads, c.head_dim, eps=c.norm_eps)
        qkv = self.product(stream.h, w.qkv, number)
        places = Places(shared.page, shared.slot, number * (len(stream.pools.keys) // sum(c.attends)))
        norm, spare = HeadNorm(w.q_norm, w.k_norm), spare_rows(heads.group)
        q, pools = rope_write(
            qkv, shared.turned, places, stream.pools, number, shared.used,
            heads=heads, norm=norm, spare=spare, route=self.route,
        )  # fmt: skip
        mixed = window_attention(q, pools, shared.window, places.first_page, route=self.route)
        return self.product(mixed, w.out, self.number.layer), stream._replace(pools=pools)

    def convolution(self, stream: Stream) -> tuple[jax.Array, Stream]:
        w, number, shared = self.weights, self.number.operator, self.shared
        assert w.taps is not None
        parts = self.product(stream.h, w.bcx, number)
        mixed, conv = conv_step(parts, w.taps, stream.conv, shared.places, number, shared.used, route=self.route)
        return self.product(mixed, w.out, self.number.layer), stream._replace(conv=conv)

    def dense(self, stream: Stream) -> Stream:
        w, number = self.weights, self.number.block
        assert w.gate_up is not None
        gated = layer_glu(stream.h, w.gate_up, number, self.shared.used, route=self.route)
        return self.added(self.product(gated, w.down, number), stream, w.operator_norm, self.number.layer + 1)

    def experts(self, stream: Stream) -> Stream:
        """What a row's experts made stays float32 until it is added to x, as the parts of a dense block do."""
        c, w, number, count = self.config, self.weights, self.number.block, self.shared.used
        assert c.experts is not None
        assert w.expert_gate_up is not None
        assert w.expert_down is not None
        rule = c.experts.rule
        scores = self.product(stream.h, w.router, number)
        chosen, factor = choose_experts(scores, w.router_bias, number, count, rule=rule, route=self.route)
        tiles = tiles_of(chosen, count, experts=rule.experts, picked=rule.picked)
        first = number * rule.experts
        inner = grouped_glu(gathered(stream.h, tiles), w.expert_gate_up, first, tiles, route=self.route)
        out = grouped_matmul(inner, w.expert_down, first, tiles, route=self.route)
        x, h = expert_sum(
            out, tiles, factor, stream.x, w.operator_norm, self.number.layer + 1, count,
            picked=rule.picked, eps=c.norm_eps, route=self.route,
        )  # fmt: skip
        return stream._replace(x=x, h=h)
