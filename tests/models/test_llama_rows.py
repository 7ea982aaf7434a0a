"""A token's logits, keys and values have the same bits in every forward that may compute it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.tiny import ODD_HEADS, ONE_QUERY_HEAD, TINY, Part, Streams, random_llama
from tests.row_invariance import bits
from tfjax.engine.least_rows import find_least_rows
from tfjax.models.llama import LlamaConfig

END = 70
"""Past the border of the first page."""

slow = pytest.mark.slow
FORMS = [
    pytest.param(ODD_HEADS, jnp.bfloat16, id="odd heads, biases, bf16"),
    pytest.param(ODD_HEADS, jnp.float32, id="odd heads, biases, f32", marks=slow),
    pytest.param(ONE_QUERY_HEAD, jnp.float32, id="one query head, f32"),
    pytest.param(ONE_QUERY_HEAD, jnp.bfloat16, id="one query head, bf16", marks=slow),
    pytest.param(TINY, jnp.float32, id="gqa, f32", marks=slow),
    pytest.param(TINY, jnp.bfloat16, id="gqa, bf16", marks=slow),
]


def row_by_row(streams: Streams) -> None:
    for position in range(END):
        streams.forward(4, Part(0, position, position + 1), tile_rows=2)


def whole_prompt(streams: Streams) -> None:
    streams.forward(128, Part(0, 0, END), tile_rows=128)


def chunks(streams: Streams) -> None:
    for start, stop in ((0, 3), (3, 61), (61, 68), (68, END)):
        streams.forward(128 if stop - start > 8 else 8, Part(0, start, stop), tile_rows=128 if stop - start > 8 else 4)


def windows(streams: Streams) -> None:
    streams.forward(128, Part(0, 0, 50), tile_rows=128)
    start = 50
    for width in (1, 5, 8, 2, 4):
        streams.forward(8, Part(0, start, start + width))
        start += width


def rejected_drafts(streams: Streams) -> None:
    """Rows computed and forgotten, then overwritten by the right ones."""
    right = streams.tokens[0].copy()
    streams.forward(128, Part(0, 0, 60), tile_rows=128)
    for start in (60, 62):
        streams.tokens[0, start:END] = (right[start:END] + 1) % streams.model.config.vocab
        streams.forward(8, Part(0, start, start + 8))
        streams.tokens[0] = right
        streams.forward(8, Part(0, start, start + 2))


def beside_another(streams: Streams) -> None:
    streams.forward(128, Part(0, 0, 63), Part(1, 0, 20), tile_rows=128)
    for position in range(63, END):
        streams.forward(8, Part(1, position, position + 3), Part(0, position, position + 1))


ARRANGEMENTS = (row_by_row, whole_prompt, chunks, windows, rejected_drafts, beside_another)


@pytest.mark.parametrize(("config", "dtype"), FORMS)
def test_every_arrangement_gives_the_bits_of_single_rows(config: LlamaConfig, dtype: Any) -> None:
    model = random_llama(config, dtype)
    found = find_least_rows(jax.tree.leaves(nnx.state(model)))
    if found.rows is None and dtype == jnp.bfloat16:
        pytest.skip(f"this processor's products are not row-invariant: {found.reason}")
    reference = Streams(model)
    row_by_row(reference)
    for arrange in ARRANGEMENTS[1:]:
        streams = Streams(model, lanes=(2, 0))
        arrange(streams)
        reached = 64 if arrange is rejected_drafts else END
        for (stream, position), logits in streams.logits.items():
            if stream == 0 and position < reached:
                same = np.array_equal(bits(logits), bits(reference.logits[0, position]))
                assert same, f"{arrange.__name__}: position {position}"
        for found, wanted in zip(streams.cached(0, reached), reference.cached(0, reached), strict=True):
            assert np.array_equal(bits(found), bits(wanted)), arrange.__name__


def test_later_tokens_do_not_reach_back() -> None:
    model = random_llama(TINY, jnp.float32)
    first, second = Streams(model), Streams(model)
    second.tokens[0, 5:] = (second.tokens[0, 5:] + 9) % TINY.vocab
    for streams in (first, second):
        streams.forward(8, Part(0, 0, 8))
    for position in range(8):
        same = np.array_equal(first.logits[0, position], second.logits[0, position])
        assert same == (position < 5)


def test_every_earlier_token_counts() -> None:
    model = random_llama(TINY, jnp.float32)
    base = Streams(model)
    base.forward(8, Part(0, 0, 8))
    for changed in range(8):
        streams = Streams(model)
        streams.tokens[0, changed] = (streams.tokens[0, changed] + 1) % TINY.vocab
        streams.forward(8, Part(0, 0, 8))
        assert not np.allclose(streams.logits[0, 7], base.logits[0, 7], atol=1e-4)
