"""A token's logits and state have the same bits in every forward that may compute it, across pages and the ring."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.tiny import Part
from tests.models.tiny_lfm2 import DENSE, MOE, Lfm2Streams, random_lfm2
from tests.row_invariance import bits
from tfjax.models.lfm2_config import Lfm2Config

END = 140
"""Past the second page and the end of the ring."""

slow = pytest.mark.slow
FORMS = [
    pytest.param(MOE, jnp.bfloat16, id="experts, bf16"),
    pytest.param(MOE, jnp.float32, id="experts, f32", marks=slow),
    pytest.param(DENSE, jnp.bfloat16, id="dense, biases, bf16", marks=slow),
    pytest.param(DENSE, jnp.float32, id="dense, biases, f32"),
]


def computed(streams: Lfm2Streams, start: int, *stops: int) -> None:
    """Consecutive forwards of one stream that end at `stops`."""
    for stop in stops:
        rows = stop - start
        bucket = next(size for size in (4, 8, 128, 160) if size >= rows)
        streams.forward(bucket, Part(0, start, stop), tile_rows=min(bucket, 4 if bucket < 9 else bucket))
        start = stop


def row_by_row(streams: Lfm2Streams) -> None:
    computed(streams, 0, *range(1, END + 1))


def whole_prompt(streams: Lfm2Streams) -> None:
    computed(streams, 0, END)


def chunks(streams: Lfm2Streams) -> None:
    computed(streams, 0, 1, 3, 6, 63, 64, 65, 127, 128, 129, END)


def windows(streams: Lfm2Streams) -> None:
    computed(streams, 0, 61, 62, 67, 75, 77, 120, 125, 126, 131, 133, END)


def rejected_drafts(streams: Lfm2Streams) -> None:
    """Rows computed and forgotten, then overwritten by the right ones."""
    right = streams.tokens[0].copy()
    start = 58
    computed(streams, 0, start)
    while start < END:
        streams.tokens[0, start + 1 :] = (right[start + 1 :] + 1) % streams.model.config.vocab
        computed(streams, start, start + 8)
        streams.tokens[0] = right
        kept = min(END, start + 1 + start % 6)
        computed(streams, start, kept)
        start = kept


def beside_another(streams: Lfm2Streams) -> None:
    streams.forward(128, Part(0, 0, 62), Part(1, 0, 20), tile_rows=128)
    for position in range(62, 68):
        streams.forward(8, Part(1, position, position + 3), Part(0, position, position + 1))
    computed(streams, 68, END)


ARRANGEMENTS = (whole_prompt, chunks, windows, rejected_drafts, beside_another)


@pytest.mark.parametrize(("config", "dtype"), FORMS)
def test_every_arrangement_gives_the_bits_of_single_rows(config: Lfm2Config, dtype: Any) -> None:
    model = random_lfm2(config, dtype)
    reference = Lfm2Streams(model)
    row_by_row(reference)
    for arrange in ARRANGEMENTS:
        streams = Lfm2Streams(model, lanes=(2, 0))
        arrange(streams)
        for position in range(END):
            if (0, position) in streams.logits:
                same = np.array_equal(bits(streams.logits[0, position]), bits(reference.logits[0, position]))
                assert same, f"{arrange.__name__}: position {position}"
        if arrange is rejected_drafts:
            continue
        for what, wanted in reference.state(0, END).items():
            assert np.array_equal(streams.state(0, END)[what], wanted), f"{arrange.__name__}: {what}"


def test_resumed_from_another_lanes_pages() -> None:
    model = random_lfm2(MOE, jnp.bfloat16)
    reference, streams = Lfm2Streams(model), Lfm2Streams(model, lanes=(0, 1))
    row_by_row(reference)
    computed(streams, 0, 100)
    streams.page_table[1, 0] = streams.page_table[0, 0]
    streams.tokens[1] = streams.tokens[0]
    for start, stop in ((64, 65), (65, 67), (67, END)):
        streams.forward(4 if stop < END else 128, Part(1, start, stop), tile_rows=4)
    for position in range(64, END):
        assert np.array_equal(bits(streams.logits[1, position]), bits(reference.logits[0, position])), position


def test_state_of_rejected_rows_is_that_of_the_serial_run() -> None:
    """Compared as far as the stream goes; behind it lies what was rejected."""
    model = random_lfm2(MOE, jnp.bfloat16)
    reference, streams = Lfm2Streams(model), Lfm2Streams(model)
    computed(reference, 0, 70)
    computed(streams, 0, 60)
    right = streams.tokens[0].copy()
    for start in range(60, 70):
        streams.tokens[0, start + 1 :] = (right[start + 1 :] + 1) % MOE.vocab
        computed(streams, start, start + 8)
        streams.tokens[0] = right
        for what, wanted in reference.state(0, 70).items():
            assert np.array_equal(streams.state(0, start + 1)[what], wanted[: start + 1]), (what, start)


def test_features_are_the_residual_streams_after_the_tapped_layers() -> None:
    """The last layer's, normed, is the hidden row; taps come in the order asked for."""
    model = random_lfm2(DENSE, jnp.float32)
    streams = Lfm2Streams(model)
    rows = streams.rows(8, Part(0, 0, 8))
    all_taps = model(streams.cache, rows, tile_rows=4, taps=(0, 1, 2))
    assert all_taps.features is not None
    assert np.array_equal(bits(model.norm(all_taps.features[:, 2 * DENSE.hidden :])), bits(all_taps.hidden))
    some = model(streams.cache, rows, tile_rows=4, taps=(2, 0)).features
    first, _, last = np.split(np.asarray(all_taps.features), 3, -1)
    assert np.array_equal(some, np.concatenate([last, first], -1))
    assert model(streams.cache, rows, tile_rows=4).features is None
    assert not np.allclose(first, last)
