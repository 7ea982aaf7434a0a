from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.engine.rows_buffer import FIELDS, RowsBuffer, Run, lay_out, unpack

SAMPLES = {
    np.int32: [0, 1, -1, 2**31 - 1, -(2**31)],
    np.uint32: [0, 1, 2**31, 2**32 - 1, 0x80000001],
    np.float32: [0.0, 1.5, -0.25, 1e-38, 3e38],
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_arrives_as_it_was_written(name: str) -> None:
    buffer = RowsBuffer(5)
    values = np.array(SAMPLES[FIELDS[name]], FIELDS[name])
    buffer[name][:] = values
    fields = unpack(jnp.asarray(buffer.matrix))
    assert fields[name].dtype == FIELDS[name]
    assert np.array_equal(np.asarray(fields[name]).view(np.int32), values.view(np.int32))
    fresh = unpack(jnp.asarray(RowsBuffer(5).matrix))
    for other in FIELDS.keys() - {name}:
        assert np.array_equal(fields[other], fresh[other])


def test_a_fresh_buffer_asks_for_nothing() -> None:
    fields = unpack(jnp.asarray(RowsBuffer(3).matrix))
    for name in FIELDS:
        assert fields[name].tolist() == [1.0 if name in {"top_p", "repetition"} else 0] * 3


def test_runs_are_laid_end_to_end_and_cut_into_tiles() -> None:
    buffer = RowsBuffer(16)
    lay_out(buffer, [Run(3, 10, 5), Run(1, 0, 1), Run(2, 63, 4)], tile_rows=4, scratch_lane=9)
    assert buffer["lane"].tolist() == [3] * 5 + [1] + [2] * 4 + [9] * 6
    assert buffer["position"].tolist() == [10, 11, 12, 13, 14, 0, 63, 64, 65, 66] + [0] * 6
    assert buffer["tile_count"][0] == 4
    assert buffer["tile_start"][:4].tolist() == [0, 4, 5, 6]
    assert buffer["tile_lane"][:4].tolist() == [3, 3, 1, 2]
    assert buffer["tile_last"][:4].tolist() == [13, 14, 0, 66]


def test_a_full_buffer_has_no_padding() -> None:
    buffer = RowsBuffer(4)
    lay_out(buffer, [Run(0, 2, 3), Run(1, 5, 1)], tile_rows=2, scratch_lane=9)
    assert buffer["lane"].tolist() == [0, 0, 0, 1]
    assert buffer["tile_start"][:3].tolist() == [0, 2, 3]


def test_more_rows_than_the_buffer_holds_are_an_error() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        lay_out(RowsBuffer(2), [Run(0, 0, 3)], tile_rows=2, scratch_lane=9)
