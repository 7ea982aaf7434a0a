"""A token's logits and state have the same bits in every forward of the stacked form that may compute it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.test_lfm2_rows import END as PAGES_END
from tests.models.test_lfm2_rows import chunks, rejected_drafts, row_by_row
from tests.models.tiny import Part
from tests.models.tiny_lfm2 import MOE, random_lfm2
from tests.models.tiny_stacked_lfm2 import StackedStreams, stacked_form
from tests.row_invariance import bits
from tfjax.kernels.conv_step import ConvState

COUNTS = (1, 2, 3, 5, 7, 16, 17, 33)
END = sum(COUNTS)
BUCKETS = (4, 8, 40)


@pytest.fixture(scope="module")
def model() -> Any:
    return stacked_form(random_lfm2(MOE, jnp.bfloat16))


@pytest.fixture(scope="module")
def alone(model: Any) -> StackedStreams:
    """Each position of stream 0 in a forward of its own, beside padding whose cache is NaN."""
    streams = StackedStreams(model)
    for position in range(END):
        streams.forward(4, Part(0, position, position + 1))
    return streams


def in_company(streams: StackedStreams) -> None:
    """Windows of every count, beside a row or two of another stream."""
    start = other = 0
    for count in COUNTS:
        beside = 1 + count % 2
        bucket = next(size for size in BUCKETS if size >= count + beside)
        parts = [Part(0, start, start + count), Part(1, other, other + beside)]
        streams.forward(bucket, *(parts[::-1] if count % 3 else parts))
        start, other = start + count, other + beside


def whole_prompt(streams: StackedStreams) -> None:
    """More rows than a window that goes through all experts as it is."""
    streams.forward(128, Part(0, 0, END), tile_rows=128)


@pytest.mark.parametrize("arrange", [in_company, whole_prompt])
def test_rows_have_the_bits_that_they_have_alone(model: Any, alone: StackedStreams, arrange: Any) -> None:
    streams = StackedStreams(model, lanes=(2, 0))
    arrange(streams)
    if arrange is in_company:
        # Rows of one forward are told in the order of its parts.
        assert {position for stream, position in streams.logits if stream == 0} == set(range(END))
    for place in [place for place in streams.logits if place[0] == 0]:
        assert np.array_equal(bits(streams.logits[place]), bits(alone.logits[place])), place
    for what, wanted in alone.state(0, END).items():
        assert np.array_equal(streams.state(0, END)[what], wanted), what


@pytest.mark.parametrize("part", ["rings", "pools"])
def test_a_state_one_layer_off_shows(model: Any, alone: StackedStreams, part: str) -> None:
    streams = StackedStreams(model)
    streams.forward(40, Part(0, 0, 30))
    conv = streams.cache.conv
    if part == "rings":
        streams.cache = replace(streams.cache, conv=ConvState(jnp.roll(conv.rings, 1, 0), conv.tails))
    else:
        pools = jax.tree.map(lambda pool: jnp.roll(pool, 1, 3), streams.cache.pools)
        streams.cache = replace(streams.cache, pools=pools)
    streams.forward(4, Part(0, 30, 33))
    assert not np.array_equal(bits(streams.logits[0, 31]), bits(alone.logits[0, 31]))


@pytest.mark.slow
@pytest.mark.parametrize("arrange", [chunks, rejected_drafts])
def test_across_pages_and_the_ring(model: Any, arrange: Any) -> None:
    reference = StackedStreams(model)
    row_by_row(reference)
    streams = StackedStreams(model, lanes=(2, 0))
    arrange(streams)
    for position in range(PAGES_END):
        same = np.array_equal(bits(streams.logits[0, position]), bits(reference.logits[0, position]))
        assert same, f"{arrange.__name__}: position {position}"


@pytest.mark.slow
def test_resumed_from_another_lanes_pages(model: Any) -> None:
    reference, streams = StackedStreams(model), StackedStreams(model, lanes=(0, 1))
    row_by_row(reference)
    streams.forward(128, Part(0, 0, 100))
    streams.page_table[1, 0] = streams.page_table[0, 0]
    streams.tokens[1] = streams.tokens[0]
    for start, stop in ((64, 65), (65, 67), (67, PAGES_END)):
        streams.forward(4 if stop < PAGES_END else 128, Part(1, start, stop), tile_rows=4)
    for position in range(64, PAGES_END):
        assert np.array_equal(bits(streams.logits[1, position]), bits(reference.logits[0, position])), position
