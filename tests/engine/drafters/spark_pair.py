"""A tiny target whose layers are tapped, DSpark drafters on its lanes, and what the numpy oracle says of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tests.engine.drafters.pair import PLAN, stream_on
from tests.models import dspark_streams
from tests.models.dspark_oracle import Drafted, Oracle, Shape
from tests.models.tiny import TINY, random_llama
from tfjax.engine.drafters.block_plan import BlockBucket, BlockPlan
from tfjax.engine.drafters.block_step import BlockStep, Told
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.drafters.starting import compile_dspark
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.step import Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.stream import Stream
from tfjax.models.dspark import FAMILY, DSpark
from tfjax.models.llama import FAMILY as LLAMA
from tfjax.models.llama import Llama, LlamaConfig

TARGET = replace(TINY, tied=False)
"""With a tied head a token mostly says itself again, and every draft lands."""

ALL = tuple(range(TINY.vocab))
SHAPE = Shape(layers=1, ids=ALL, rank=TINY.hidden, interleaved=True, temperatures=(1.0, 1.2, 1.4, 1.6, 1.8))
BLOCK = SHAPE.block
TAPS = (0, 1)


def loaded_llama(model: Llama) -> LoadedModel:
    return LoadedModel(LLAMA, model.config, model, np.float32)


def tapped_target(
    model: LoadedModel, memory: MemoryPlan, like: TargetBackend | None = None, *, hands_round: bool = False
) -> TargetBackend:
    """`like` has the same shapes, and the programs."""
    target = TargetBackend(model, Step(model.module, TAPS, hands_round=hands_round), PLAN, memory)
    if like is not None:
        target.step._compiled = like.step._compiled
    for bucket in PLAN.all:
        target.step.compile(bucket, target.state, target.page_table)
    target.warm_up()
    return target


@dataclass(frozen=True, slots=True)
class Spark:
    """A random drafter that shares the target's embedding and head, and its oracle."""

    module: DSpark
    oracle: Oracle
    shape: Shape

    def shorter(self, block: int) -> Oracle:
        """What it drafts where only so many slots are computed."""
        return Oracle(replace(self.shape, block=block), self.oracle.w, self.oracle.embedding, self._head)

    @property
    def _head(self) -> NDArray[np.float64]:
        head = np.zeros((self.shape.vocab, self.shape.hidden))
        head[list(self.shape.ids)] = self.oracle.head
        return head


def random_spark(target: Any, shape: Shape = SHAPE) -> Spark:
    made = dspark_streams.random_pair(shape)
    embedding, head = target.embedding[...], target.head_weight
    made.module.join(embedding, head, jnp.asarray(shape.ids, jnp.int32))
    oracle = Oracle(shape, made.oracle.w, np.asarray(embedding, np.float64), np.asarray(head, np.float64))
    return Spark(made.module, oracle, shape)


def forgetful_llama(config: LlamaConfig = TARGET) -> Llama:
    """Its next token depends on the token before alone: layers add nothing to the embedding."""
    model = random_llama(config, np.float32)
    for layer in model.layers:
        for weight in (layer.attention.out.weight, layer.mlp.down.weight):
            weight[...] = jnp.zeros_like(weight[...])
    return model


def all_knowing_spark(target: Llama) -> Spark:
    """Its Markov head alone has the logits of a forgetful target."""
    made = random_spark(target)
    module: Any = made.module
    module.head = nnx.Param(jnp.zeros_like(module.head[...]))
    module.markov.w1 = nnx.Param(target.norm(target.embedding[...]))
    module.markov.w2 = nnx.Param(target.head_weight)
    return made


def drafting_spark(spark: Spark, module: DSpark | None = None) -> DraftingModel:
    module = module or spark.module
    loaded = LoadedModel(FAMILY, module.config, module, np.float32)
    return DraftingModel("spark", "dspark", loaded, module.ids[...], TINY.vocab)


HOLDS = (BlockBucket(1, 1), BlockBucket(1, 2), BlockBucket(1, BLOCK), BlockBucket(4, BLOCK))


def started_spark(
    spark: Spark, target: TargetBackend, holds: Sequence[BlockBucket] = HOLDS, like: DSparkDrafter | None = None
) -> DSparkDrafter:
    """`like` has the same shapes, and the programs."""
    if like is not None:
        return another_spark(like, target, spark)
    rows = tuple(bucket.rows for bucket in PLAN.all)
    plan = BlockPlan(spark.shape.block, 0 if spark.shape.anchor_first else 1, tuple(holds), rows)
    drafter = DSparkDrafter(drafting_spark(spark), BlockStep(spark.module, plan), plan, target)
    compile_dspark(drafter, lambda phase, share: None)
    return drafter


def another_spark(
    drafter: DSparkDrafter, target: TargetBackend, spark: Spark | None = None, *, module: DSpark | None = None
) -> DSparkDrafter:
    """A fresh drafter of the same shapes on the compiled programs; `target` tells it its features from here on."""
    model = drafter.model if spark is None else drafting_spark(spark, module)
    step = BlockStep(model.loaded.module, drafter.plan)
    step._compiled = drafter.step._compiled
    return DSparkDrafter(model, step, drafter.plan, target)


def features_of(target: TargetBackend, model: LoadedModel, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The tapped layers' features of a text that nothing but prompts compute. Shape: [tokens, taps * D]."""
    told: list[NDArray[np.float32]] = []
    alone = tapped_target(model, target.memory, target)
    alone.listener = lambda features, places, runs: told.append(np.asarray(features)[: sum(run.rows for run in runs)])
    stream = stream_on(0, tokens, memory=target.memory)
    alone.prefill_begin(stream)
    for start in range(0, len(tokens), PAGE_ROWS):
        alone.prefill_step(stream, start, min(start + PAGE_ROWS, len(tokens)))
    return np.concatenate(told)


def oracle_says(
    spark: Spark, target: TargetBackend, model: LoadedModel, stream: Stream, block: int = BLOCK, first_page: int = 0
) -> Drafted:
    """A whole block after the stream's context, of which only the pages from `first_page` on are known."""
    features = features_of(target, model, stream.context[:-1])[first_page * PAGE_ROWS :]
    return spark.shorter(block).draft(features.astype(np.float64), stream.context[-1])


def fresh_rows(drafter: DSparkDrafter, features: NDArray[np.float32]) -> list[NDArray[Any]]:
    """Keys and values of a context that is absorbed from its start on, a page in one call. Shapes: [rows, K, H]."""
    memory = drafter.memory
    cache = drafter.model.empty_cache(memory.pages + 1, memory.lanes + 1)
    table = np.zeros((memory.lanes + 1, memory.pages_per_lane), np.int32)
    table[0] = 1 + np.arange(memory.pages_per_lane)
    for start in range(0, len(features), PAGE_ROWS):
        rows = features[start : start + PAGE_ROWS]
        padded = np.zeros((PAGE_ROWS, rows.shape[1]), np.float32)
        padded[: len(rows)] = rows
        places = np.zeros((2, PAGE_ROWS), np.int32)
        places[0, len(rows) :] = memory.lanes
        places[1, : len(rows)] = start + np.arange(len(rows))
        cache = drafter.step.absorb(cache, Told(jnp.asarray(padded), jnp.asarray(places)), jnp.asarray(table))
    return _rows(cache, range(1, 1 + memory.pages_per_lane), len(features))


def known_rows(drafter: DSparkDrafter, stream: Stream, stop: int) -> list[NDArray[Any]]:
    """The same of positions [0, stop) of a stream, as the drafter has them."""
    drafter._catch_up()
    return _rows(drafter.cache, np.add(stream.pages, 1).tolist(), stop)


def _rows(cache: Any, pages: Sequence[int], stop: int) -> list[NDArray[Any]]:
    pools = [np.asarray(pool)[list(pages)] for pool in jax.tree.leaves(cache)]
    return [pool.swapaxes(1, 2).reshape(-1, *pool.shape[1::2])[:stop] for pool in pools]
