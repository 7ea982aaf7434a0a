from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.engine.scripted_step import VOCAB, Fault, ScriptedStep
from tests.models.tiny import TINY, random_llama
from tfjax.engine.buckets import Plan, single_bucket_plan
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.probe import SINGLES, Difference, ProbeReport, probe
from tfjax.engine.rows_buffer import unpack
from tfjax.engine.step import Bucket, State, Stepped
from tfjax.kernels.draw import Drawn
from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.models.blocks import norm
from tfjax.models.llama import Llama, empty_cache
from tfjax.models.rows import Rows

VERIFY = tuple(Bucket(rows, rows, min(rows, 4)) for rows in (2, 4, 8, 16, 32))
PLAN = Plan("row-invariant", VERIFY, (*VERIFY, Bucket(128, 2, 128), Bucket(512, 2, 128)))


def memory(context: int = 256, lanes: int = 4) -> MemoryPlan:
    pages = lanes * -(-context // PAGE_ROWS)
    return MemoryPlan(context, False, lanes, pages, cache_bytes=0, weight_bytes=0, budget_bytes=0)


def probed(fault: Fault | None = None, plan: Plan = PLAN, **sizes: int) -> tuple[ProbeReport, ScriptedStep]:
    room = memory(**sizes)
    step: Any = ScriptedStep(room.lanes, room.pages, fault)
    report, _ = probe(step, plan, room, VOCAB, step.state)
    return report, step


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("context", [2, 3, 8, 11, 12, 40, 64, 65, 100, 128, 133, 256])
@pytest.mark.parametrize("plan", [PLAN, single_bucket_plan()], ids=["buckets", "single"])
def test_an_exact_backend_passes_at_every_size(context: int, lanes: int, plan: Plan) -> None:
    report, _ = probed(plan=plan, context=context, lanes=lanes)
    assert report.passed, str(report.difference)
    assert report.rows_compared >= min(context - 1, SINGLES)
    assert ("beside another stream" in report.arrangements) == (lanes > 1)


def test_every_bucket_is_compared() -> None:
    assert set(probed()[1].buckets) == set(PLAN.all)


def narrow_only(forward: Any, hidden: Any, logits: Any) -> None:
    """A product that a wide bucket computes by another algorithm."""
    if forward.bucket.rows == 32:
        logits += 0.5


def beside_others(forward: Any, hidden: Any, logits: Any) -> None:
    """A row that notices how many other rows are in use."""
    if forward.used > 3 and len(set(forward.lane[: forward.used].tolist())) > 1:
        logits[0] += 0.5


def cache_by_place(forward: Any, hidden: Any, logits: Any) -> None:
    """Keys rounded otherwise at place 7 of a chunk."""
    if 7 < forward.used < 100:
        hidden[7] += 0.25


def one_position(forward: Any, hidden: Any, logits: Any) -> None:
    if forward.bucket.rows == 16:
        logits[forward.position == 125] += 1


def other_lane(forward: Any, hidden: Any, logits: Any) -> None:
    logits[forward.lane == 3] *= 2


def last_bit(forward: Any, hidden: Any, logits: Any) -> None:
    if forward.bucket.rows > 8:
        logits[:] = np.nextafter(logits, np.float32(np.inf))


FAULTS: list[tuple[Fault, str, str, int, int]] = [
    (narrow_only, "bucket of 32 rows in tiles of 4", "logits", 32, 122),
    (beside_others, "bucket of 16 rows in tiles of 4", "logits", 16, 122),
    (cache_by_place, "prompt in odd chunks", "cache[0].keys", 58, 10),
    (one_position, "bucket of 16 rows in tiles of 4", "logits", 16, 125),
    (other_lane, "windows in another lane", "logits", 122, 121),
    (last_bit, "prompt whole", "logits", 133, 132),
]


@pytest.mark.parametrize(("fault", "arrangement", "what", "rows", "position"), FAULTS)
def test_a_fault_is_named(fault: Fault, arrangement: str, what: str, rows: int, position: int) -> None:
    report, _ = probed(fault)
    assert not report.passed
    assert report.difference == Difference(arrangement, rows, position, what)
    for word in (arrangement, what, str(rows), str(position)):
        assert word in str(report.difference)


def test_draws_that_depend_on_the_rows_beside_them_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedStep, "drawn_off", lambda self, forward: int(forward.used > 5))
    difference = probed()[0].difference
    assert difference is not None
    assert difference.what == "draws"


def test_a_fault_of_the_shape_is_none_in_a_single_bucket() -> None:
    assert not probed(last_bit)[0].passed
    assert probed(last_bit, single_bucket_plan())[0].passed


def test_equal_bits_are_equal_also_where_they_are_no_numbers() -> None:
    """Logits that are not finite are told to the requests that draw them; they are no difference."""

    def broken(forward: Any, hidden: Any, logits: Any) -> None:
        logits[:, 3] = np.nan

    assert probed(broken)[0].passed


def test_signs_of_zero_are_a_difference() -> None:
    def negative(forward: Any, hidden: Any, logits: Any) -> None:
        logits[:, 0] = -0.0 if forward.bucket.rows == 8 else 0.0

    assert not probed(negative)[0].passed


# With a real model.


WIDE = replace(TINY, hidden=576, inner=32, heads=2, kv_heads=1, head_dim=16, layers=1)
SMALL = Plan("row-invariant", (VERIFY[0], VERIFY[3]), (VERIFY[0], VERIFY[3], Bucket(128, 2, 128)))


class ModelStep:
    """A Step that returns logits and draws the first token, which is quicker to compile."""

    def __init__(self, model: Llama):
        self.definition, self.parameters = nnx.split(model)
        self.forward = jax.jit(self._forward, static_argnums=0)

    def _forward(self, bucket: Bucket, parameters: Any, cache: Any, token: Any, matrix: Any, table: Any) -> Any:
        model: Llama = nnx.merge(self.definition, parameters)
        field = unpack(matrix)
        tiles = Tiles(field["tile_count"][0], field["tile_start"], field["tile_lane"], field["tile_last"])
        rows = Rows(token, field["lane"], field["position"], tiles, table)
        hidden, cache, _ = model(cache, rows, tile_rows=bucket.tile_rows)
        return rows_matmul(hidden[field["draw_row"][: bucket.draws]], model.head_weight), cache

    def __call__(self, bucket: Bucket, state: State, token: Any, matrix: Any, page_table: Any) -> Any:
        logits, cache = self.forward(bucket, self.parameters, state.cache, token, matrix, page_table)
        nothing: Any = None
        drawn = Drawn(jnp.zeros(bucket.draws, jnp.int32), nothing, nothing, nothing)
        return Stepped(drawn, token, nothing, logits, None, state._replace(cache=cache))


def probed_model() -> ProbeReport:
    room = memory(lanes=2)
    step: Any = ModelStep(random_llama(WIDE, jnp.float32))
    state: Any = State(empty_cache(WIDE, room.pages + 1, PAGE_ROWS, room.lanes + 1, jnp.dtype(jnp.float32)), None)
    return probe(step, SMALL, room, WIDE.vocab, state)[0]


def test_the_model_passes() -> None:
    report = probed_model()
    assert report.passed, str(report.difference)


def test_an_operator_that_is_not_invariant_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_mean(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * weight

    monkeypatch.setattr(norm, "rms_norm", by_mean)
    difference = probed_model().difference
    assert difference is not None
    assert difference.rows > 2
