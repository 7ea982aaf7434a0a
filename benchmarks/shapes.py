"""Sizes of published LFM2 models and their DSpark drafters, filled with random weights on the device."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks.random_weights import random_model, random_module
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.dspark_kernels import choose_dspark_kernels
from tfjax.engine.kernel_choice import Kernels
from tfjax.engine.weights import LoadedModel
from tfjax.models import dspark, lfm2, lfm2_moe
from tfjax.models.blocks.experts import ExpertsConfig
from tfjax.models.blocks.markov import MarkovKind
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.family import Family
from tfjax.models.lfm2_config import Lfm2Config
from tfjax.models.llama import LlamaConfig

DTYPE = jnp.bfloat16
CONTEXT = 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """A target and its drafter.

    Attributes:
        assumed: which of their sizes nobody published; empty for none.
        plain: whether a stream without drafts is timed too.
    """

    name: str
    target: Lfm2Config
    drafter: DSparkConfig
    assumed: str = ""
    plain: bool = False

    @property
    def family(self) -> Family[Lfm2Config]:
        """Of the target."""
        return lfm2_moe.FAMILY if self.target.experts else lfm2.FAMILY

    @property
    def target_bytes(self) -> int:
        return weight_bytes(self.family, self.target)

    @property
    def drafter_bytes(self) -> int:
        """Without what it shares with the target."""
        shared: int = 2 * self.drafter.vocab * self.drafter.hidden * jnp.dtype(DTYPE).itemsize
        return weight_bytes(dspark.FAMILY, self.drafter) - shared

    @property
    def weight_bytes(self) -> int:
        return self.target_bytes + self.drafter_bytes


def _target(attending: tuple[int, ...], layers: int, inner: int, vocab: int, theta: float, **more: Any) -> Lfm2Config:
    return Lfm2Config(
        vocab=vocab,
        hidden=2048,
        inner=inner,
        attends=tuple(layer in attending for layer in range(layers)),
        heads=32,
        kv_heads=8,
        norm_eps=1e-5,
        rope=RopeConfig(theta),
        taps=3,
        conv_bias=False,
        context=CONTEXT,
        tied=True,
        **{"dense_layers": layers} | more,
    )


def drafter_of(target: Lfm2Config | LlamaConfig, taps: tuple[int, ...]) -> DSparkConfig:
    """Of the sizes of the published ones, for a target of any width."""
    return DSparkConfig(
        hidden=target.hidden,
        target_hidden=target.hidden,
        layers=5,
        heads=32,
        kv_heads=8,
        head_dim=64,
        inner=6144,
        norm_eps=1e-5,
        rope=target.rope,
        qk_norm=QKNorm.BEFORE_ROPE,
        interleaved=True,
        vocab=target.vocab,
        draft_vocab=target.vocab,
        block=9,
        mask_token=target.vocab - 1,
        taps=taps,
        target_layers=target.layers,
        markov=MarkovKind.VANILLA,
        markov_rank=256,
        markov_rows=target.vocab,
        confidence=True,
        confidence_with_markov=True,
        confidence_temperatures=(),
        anchor_first=True,
        own_embedding=False,
        own_head=False,
        context=CONTEXT,
    )


_SMALL = _target((2, 5, 8, 10, 12, 14), 16, 8192, 65536, 1e6)
_MIDDLE = _target((2, 5, 9, 13, 17, 21, 24, 27), 30, 10752, 128000, 1e7)
_EXPERTS = ExpertsConfig(count=64, picked=4, inner=1536, biased=True, normalised=True, scale=1.0)
_LARGE = _target(tuple(range(2, 40, 4)), 40, 11520, 128000, 1e7, dense_layers=2, experts=_EXPERTS)

SHAPES = (
    Shape("LFM2.5-1.2B", _SMALL, drafter_of(_SMALL, (2, 5, 8, 11, 14)), plain=True),
    Shape("LFM2.5-2.6B", _MIDDLE, drafter_of(_MIDDLE, (2, 9, 17, 21, 27))),
    Shape(
        "LFM2.5-24B-A2B",
        _LARGE,
        drafter_of(_LARGE, (2, 10, 18, 26, 34)),
        assumed="attention at 2, 6, ..., 38, dense width 11,520, RoPE theta, the drafter's taps",
        plain=True,
    ),
)
"""Source: the published configs; see `assumed` for what is not in them."""


def shrunk(shape: Shape) -> Shape:
    """The same parts, small enough for a test: as many kinds of layers, few of each."""
    experts = replace(_EXPERTS, count=8, inner=32) if shape.target.experts else None
    target = replace(
        shape.target, vocab=256, hidden=64, inner=96, heads=4, kv_heads=2, attends=shape.target.attends[:7]
    )
    target = replace(target, dense_layers=min(2, target.layers) if experts else target.layers, experts=experts)
    sizes: dict[str, Any] = {"hidden": 64, "target_hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "inner": 96}
    vocab: dict[str, Any] = {"vocab": 256, "draft_vocab": 256, "markov_rows": 256, "mask_token": 255, "markov_rank": 8}
    drafter = replace(shape.drafter, **sizes, **vocab, layers=2, taps=(1, 3), target_layers=target.layers)
    return replace(shape, target=target, drafter=drafter)


def weight_bytes(family: Family[Any], config: Any) -> int:
    """Of all parameters, without making any."""
    state = nnx.state(nnx.eval_shape(lambda: family.build(config, DTYPE)))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def random_target(shape: Shape, kernels: str = "reference") -> LoadedModel:
    """Made on the device, by the operators that `--kernels` means for it there."""
    return random_model(shape.family, shape.target, DTYPE, kernels)


def dspark_module(config: DSparkConfig, run_by: Kernels) -> nnx.Module:
    """A drafter in the form that its operators take, with placeholder parameters."""
    form = dspark.FAMILY.stacked if run_by.stacked else None
    return form.build(config, DTYPE, run_by.route) if form else dspark.FAMILY.build(config, DTYPE)


def random_drafter(shape: Shape, target: LoadedModel) -> DraftingModel:
    """The same, joined with its target's embedding and head, of which there is no second copy."""
    family, config = dspark.FAMILY, shape.drafter
    run_by = choose_dspark_kernels(family, config, DTYPE, target.kernels, shape.target.vocab)
    module: Any = random_module(lambda: dspark_module(config, run_by), ("embedding", "head", "ids"))
    own: Any = target.module
    ids = jnp.arange(shape.drafter.vocab, dtype=jnp.int32)
    embedding, head = own.embedding[...], own.head_weight
    module.join(embedding, head, ids)
    loaded = LoadedModel(family, config, module, DTYPE, run_by)
    return DraftingModel("random", "dspark", loaded, ids, shape.target.vocab, (embedding, head))
