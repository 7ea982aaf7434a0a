"""Random tiny DSpark drafters, and blocks drafted by them for several streams at once, as a server drives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tests.models.dspark_oracle import Drafted, Oracle, Shape
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.models.dspark import DSpark, empty_cache
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.dspark_tensors import sources
from tfjax.models.rows import Rows

PROMPTS = (1, 2, 63, 64, 65, 130)
"""Context rows of the streams."""


def hf_config(shape: Shape) -> dict[str, Any]:
    """As LiquidAI publishes its own."""
    return {
        "architectures": ["Lfm2DSparkDraftModel"],
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.inner,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "vocab_size": shape.vocab,
        "max_position_embeddings": 512,
        "draft_vocab_size": shape.vocab if len(shape.ids) >= 60 else len(shape.ids),
        "block_size": shape.block + (not shape.anchor_first),
        "sample_from_anchor": shape.anchor_first,
        "markov_rank": shape.rank,
        "markov_head_type": shape.markov,
        "enable_confidence_head": True,
        "confidence_head_with_markov": shape.confidence_with_markov,
        "confidence_temperatures": list(shape.temperatures) or None,
        "rope_is_neox_style": not shape.interleaved,
        "qk_norm_order": shape.order,
        "dflash_config": {"mask_token_id": shape.mask, "target_layer_ids": list(range(shape.taps))},
    }


@dataclass(frozen=True, slots=True)
class Pair:
    """A module and the oracle with the same weights."""

    module: DSpark
    oracle: Oracle


def random_pair(shape: Shape, changed: Callable[[DSparkConfig], DSparkConfig] = lambda config: config) -> Pair:
    """`changed` makes the module's config differ from the oracle's."""
    config = replace(DSparkConfig.from_hf(hf_config(shape)), markov_rows=shape.w1_rows)
    random = np.random.default_rng(4)
    tensors = {
        part.name: (random.normal(0, 0.3, part.shape) + (part.name.endswith("norm.weight"))).astype(np.float32)
        for parts in sources(config).values()
        for part in parts
    }
    embedding, head = (random.normal(0, 1, (shape.vocab, shape.hidden)).astype(np.float32) for _ in range(2))
    module = DSpark(changed(config), jnp.float32)
    flat = dict(nnx.to_flat_state(nnx.state(module)))
    for path, parts in sources(changed(config)).items():
        key = tuple(int(part) if part.isdigit() else part for part in path.split("."))
        flat[key] = flat[key].replace(jnp.concatenate([jnp.asarray(tensors[part.name]) for part in parts]))
    nnx.update(module, nnx.from_flat_state(flat))
    module.join(jnp.asarray(embedding), jnp.asarray(head), jnp.asarray(shape.ids, jnp.int32))
    return Pair(module, Oracle(shape, tensors, embedding.astype(np.float64), head.astype(np.float64)))


class BlockStreams:
    """Streams with pages of their own, none in order, and NaN in all that was not written."""

    PAGES = 4
    read_from = 0
    """First page that blocks read."""

    def __init__(self, module: DSpark, streams: int, tile_rows: int = 4):
        self.module, self.streams, self.tile_rows = module, streams, tile_rows
        pages = 1 + np.random.default_rng(1).permutation(streams * self.PAGES).reshape(streams, self.PAGES)
        self.page_table = jnp.asarray(np.concatenate([pages, np.zeros((1, self.PAGES), int)]), jnp.int32)
        empty = empty_cache(module.config, 1 + streams * self.PAGES, PAGE_ROWS, jnp.float32)
        self.cache = jax.tree.map(lambda pool: jnp.full_like(pool, jnp.nan), empty)

    def absorb(self, features: Sequence[NDArray[Any]], starts: Sequence[int]) -> None:
        """Context rows of every stream from its start on, in as many rows as a bucket of that size has."""
        runs = [Run(i, start, len(rows)) for i, (rows, start) in enumerate(zip(features, starts, strict=True))]
        used = sum(run.rows for run in runs)
        rows, token = self._rows(runs, 1 << used.bit_length())
        padded = np.zeros((len(token), features[0].shape[1]), np.float32)
        padded[:used] = np.concatenate(features)
        dtype = self.module.embedding[...].dtype
        self.cache = self.module.absorb(self.cache, jnp.asarray(padded, dtype), rows)

    def block(self, anchors: Sequence[int], starts: Sequence[int]) -> list[Drafted]:
        """Greedy drafts of every stream, whose anchor stands at its start."""
        c = self.module.config
        slots = c.block + c.first_slot
        runs = [Run(i, start, slots) for i, start in enumerate(starts)]
        rows, token = self._rows(runs, slots * len(runs) + 2)
        token[: slots * len(runs)] = c.mask_token
        token[: slots * len(runs) : slots] = anchors
        seen = np.zeros(len(token), np.int32)
        seen[: slots * len(runs)] = np.repeat(np.array(starts) + slots - 1, slots)
        read = jnp.roll(self.page_table, -self.read_from, 1) if self.read_from else None
        h, self.cache = self.module.block(
            self.cache,
            rows._replace(token=jnp.asarray(token)),
            mask_position=self.seen(seen, np.asarray(rows.position)) - self.read_from * PAGE_ROWS,
            tile_rows=self.tile_rows,
            read_table=read,
        )
        return self.walk(h[: slots * len(runs)].reshape(len(runs), slots, -1)[:, c.first_slot :], anchors)

    def seen(self, last: NDArray[np.int32], own: NDArray[np.int32]) -> jax.Array:
        """Which position each row sees up to: the last of its block, and not its own."""
        return jnp.asarray(last)

    def before(self, previous: jax.Array, drawn: jax.Array) -> jax.Array:
        """The token before the next draft, given the one before this draft, and this draft."""
        return drawn

    def walk(self, h: jax.Array, anchors: Sequence[int]) -> list[Drafted]:
        """Shape: h [S, block, D]."""
        module = self.module
        previous, state = jnp.asarray(anchors, jnp.int32), module.markov.start(len(anchors))
        tokens, confidences = [], []
        for place in range(module.config.block):
            row = h[:, place]
            confidences.append(np.asarray(module.confidence(row, previous, place)))
            bias, state = module.markov(state, previous, row)
            drawn = module.ids[...][jnp.argmax(module.logits(row) + bias, -1)]
            tokens.append(np.asarray(drawn))
            previous = self.before(previous, drawn)
        return [Drafted([int(t[i]) for t in tokens], [float(c[i]) for c in confidences]) for i in range(len(anchors))]

    def _rows(self, runs: Sequence[Run], columns: int) -> tuple[Rows, NDArray[np.int32]]:
        buffer = RowsBuffer(columns)
        lay_out(buffer, runs, tile_rows=self.tile_rows, scratch_lane=self.streams)
        tiles = Tiles(*(jnp.asarray(buffer[f"tile_{name}"]) for name in ("start", "start", "lane", "last")))
        tiles = tiles._replace(used=jnp.asarray(buffer["tile_count"][0]))
        token = np.zeros(columns, np.int32)
        lane, position = jnp.asarray(buffer["lane"]), jnp.asarray(buffer["position"])
        return Rows(jnp.asarray(token), lane, position, tiles, self.page_table), token
