"""DSpark's state does not depend on how its rows came, and its precision is that of its weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tests.models.dspark_oracle import Shape
from tests.models.dspark_streams import PROMPTS, BlockStreams, random_pair
from tests.row_invariance import bits
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.models.dspark import FAMILY, DSpark

FEATURES = [np.random.default_rng(2).normal(0, 1, (rows, 64)).astype(np.float32) for rows in PROMPTS]


def written(streams: BlockStreams) -> list[np.ndarray]:
    """Bits of every pool, page by page of every stream."""
    return [bits(np.asarray(pool)[np.asarray(streams.page_table[:-1])]) for pool in jax.tree.leaves(streams.cache)]


def test_context_rows_have_the_same_bits_in_any_chunks() -> None:
    module = random_pair(Shape(interleaved=True)).module
    whole, parts, late = (BlockStreams(module, len(PROMPTS)) for _ in range(3))
    whole.absorb(FEATURES, [0] * len(PROMPTS))
    for start, stop in ((0, 1), (1, 64), (64, 66), (66, 200)):
        chunks = [rows[start:stop] for rows in FEATURES]
        parts.absorb(chunks, [min(start, len(rows)) for rows in FEATURES])
    for one, other in zip(written(whole), written(parts), strict=True):
        assert (one == other).all()
    late.absorb([rows + 1 for rows in FEATURES], [0] * len(PROMPTS))
    assert any((one != other).any() for one, other in zip(written(whole), written(late), strict=True))


def test_rows_of_a_block_are_gone_once_absorbed() -> None:
    module = random_pair(Shape()).module
    plain, drafted = (BlockStreams(module, len(PROMPTS)) for _ in range(2))
    block = module.config.block
    longer = [np.concatenate([rows, rows[:1].repeat(block, 0)]) for rows in FEATURES]
    plain.absorb(longer, [0] * len(PROMPTS))
    drafted.absorb(FEATURES, [0] * len(PROMPTS))
    drafted.block([3] * len(PROMPTS), PROMPTS)
    assert any((one != other).any() for one, other in zip(written(plain), written(drafted), strict=True))
    drafted.absorb([rows[-block:] for rows in longer], PROMPTS)
    for one, other in zip(written(plain), written(drafted), strict=True):
        assert (one == other).all()


def test_in_bfloat16() -> None:
    """The residual stream and the cache are bfloat16, logits and confidences float32 and near the exact ones."""
    shape = Shape(markov="rnn")
    pair = random_pair(shape)
    definition, state = nnx.split(pair.module)
    heads = nnx.state(pair.module.confidence_head)
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if leaf.dtype == jnp.float32 else leaf, state)
    module: DSpark = nnx.merge(definition, low)
    assert module.confidence_head is not None
    nnx.update(module.confidence_head, heads)
    streams = BlockStreams(module, 1)
    streams.cache = jax.tree.map(lambda pool: pool.astype(jnp.bfloat16), streams.cache)
    streams.absorb(FEATURES[4:5], [0])
    (drafted,) = streams.block([3], [PROMPTS[4]])
    exact = pair.oracle.draft(FEATURES[4].astype(np.float64), 3)
    assert drafted.tokens[0] == exact.tokens[0]
    assert abs(drafted.confidences[0] - exact.confidences[0]) < 0.05
    assert {leaf.dtype for leaf in jax.tree.leaves(streams.cache)} == {jnp.dtype(jnp.bfloat16)}
    assert module.logits(jnp.ones((2, 32), jnp.bfloat16)).dtype == jnp.float32


def test_memory() -> None:
    config = random_pair(Shape()).module.config
    cache = FAMILY.empty_cache(config, 3, PAGE_ROWS, 2, jnp.bfloat16)
    assert FAMILY.cache_bytes_per_position(config, jnp.bfloat16) * 3 * PAGE_ROWS == sum(
        leaf.nbytes for leaf in jax.tree.leaves(cache)
    )
    assert FAMILY.cache_bytes_per_lane(config, jnp.bfloat16) == 0
