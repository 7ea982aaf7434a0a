from __future__ import annotations

import jax.numpy as jnp
import pytest

from benchmarks.blocks import Blocks
from benchmarks.device_window import equal_rows, floor_ms
from benchmarks.goals import llama, tax
from benchmarks.goals.llama import measure_long, measure_windows
from benchmarks.goals.prefill import _by_plan, measure_prefill
from benchmarks.windows import llama_of
from tfjax.engine.buckets import kernel_plan, row_invariant_plan
from tfjax.kernels.specs import TINY

CONFIG = llama_of(TINY, 1)


def test_a_prompt_is_computed_in_the_server_s_pieces() -> None:
    assert _by_plan(kernel_plan(16), 2048) == [(512, 512)] * 4
    assert _by_plan(row_invariant_plan(2), 600) == [(512, 512), (88, 128)]


def test_other_bits_among_more_rows_are_an_error_where_they_must_be_equal() -> None:
    rows = jnp.arange(12.0).reshape(4, 3)
    assert equal_rows({1: rows[:1], 4: rows}, must=True) == {"1 among 4": True}
    other = {1: rows[1:2], 4: rows}
    assert equal_rows(other, must=False) == {"1 among 4": False}
    with pytest.raises(RuntimeError, match="rows have other bits"):
        equal_rows(other, must=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_number_of_a_llama_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "CASES", ((1, 8),))
    monkeypatch.setattr(tax, "CASES", ((1, 8),))
    blocks = Blocks(1e4)
    measure_windows(blocks, CONFIG, "auto")
    row = blocks.found["1 rows"]
    assert (row["floor_ms"], row["value"]) == (floor_ms(CONFIG, 512), min(row["times"]))
    assert "reference operators" in row["note"]
    measure_long(blocks, CONFIG, "auto", 700)
    assert blocks.found["1 rows"]["floor_ms"] == floor_ms(CONFIG, 700)
    measure_prefill(blocks, CONFIG, "auto", 140)
    ratio = (
        min(blocks.found[name]["ms"] for name in ("XLA, whole", "XLA, in pieces", "XLA, dense"))
        / blocks.found["ours"]["ms"]
    )
    assert blocks.found["speed"]["value"] == ratio
    tax.measure_tax(blocks, CONFIG, "auto")
    taxed = blocks.found["1 rows"]
    assert taxed["value"] == min(taxed["ours_ms"]) / min(min(times) for times in taxed["xla_ms"].values())
    assert not blocks.failed
