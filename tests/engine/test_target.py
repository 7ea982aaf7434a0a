from __future__ import annotations

from collections import deque
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.tiny import TINY
from tfjax.engine.api import Sampling
from tfjax.engine.buckets import row_invariant_plan
from tfjax.engine.lane_tables import bytes_per_lane
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.rows_buffer import LANE_AND_POSITION, RowsBuffer, Run
from tfjax.engine.step import Bucket, Stepped
from tfjax.engine.target import TargetBackend, WindowMismatch, empty_state
from tfjax.engine.unread import FIRST, HELD
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.draw import TOP_LOGPROBS, Drawn
from tfjax.lanes.backend import Backend
from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.window import Window
from tfjax.models.llama import FAMILY

MEMORY = MemoryPlan(256, False, 3, 12, cache_bytes=0, weight_bytes=0, budget_bytes=0)
MODEL = LoadedModel(FAMILY, TINY, nnx.Module(), jnp.float32)


class OnDevice:
    """An array of which is known whether it was sent to the host before anybody asked."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.sent = False

    def copy_to_host_async(self) -> None:
        self.sent = True

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.values)

    def __len__(self) -> int:
        return len(self.values)


class RecordingStep:
    """Draws 100, 101, ... down the rows, or what is ordered, and remembers what it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[Bucket, Any, RowsBuffer, np.ndarray]] = []
        self.orders: deque[Any] = deque()
        self.features: Any = None
        self.given_back: list[tuple[Bucket, int]] = []

    def give_back(self, bucket: Bucket, drawn: Drawn, token: Any) -> None:
        self.given_back.append((bucket, len(token)))

    def __call__(self, bucket: Bucket, state: Any, token: Any, matrix: Any, page_table: Any) -> Any:
        buffer = RowsBuffer(bucket.rows)
        buffer.matrix[:] = matrix
        self.calls.append((bucket, token, buffer, np.asarray(page_table)))
        order = self.orders.popleft() if self.orders else np.arange(100, 100 + bucket.draws)
        if isinstance(order, Exception):
            raise order
        draws = bucket.draws
        logprob = -np.arange(draws, dtype=np.float32)
        ids = np.arange(draws * TOP_LOGPROBS).reshape(draws, TOP_LOGPROBS)
        nothing: Any = None
        outputs: Any = [OnDevice(values) for values in (order, logprob, ids, -ids.astype(np.float32))]
        known: Any = OnDevice(token)
        return Stepped(Drawn(*outputs), known, matrix[LANE_AND_POSITION], nothing, self.features, state)


class Target:
    """A backend on the recording step, and streams that hold its lanes."""

    def __init__(self) -> None:
        self.step = RecordingStep()
        step: Any = self.step
        self.backend = TargetBackend(MODEL, step, row_invariant_plan(2), MEMORY)

    def stream(self, lane: int = 0, prompt: int = 5, stop_ids: tuple[int, ...] = (), **sampling: Any) -> Stream:
        request = Request(f"lane{lane}", tuple(range(prompt)), 50, frozenset(stop_ids), sampling=Sampling(**sampling))
        stream = Stream(request, prompt + 50, Times(0.0), lane=lane, pages=[4 * lane, 4 * lane + 1])
        self.backend.prefill_begin(stream)
        return stream

    @property
    def last(self) -> tuple[Bucket, Any, RowsBuffer, np.ndarray]:
        return self.step.calls[-1]


def test_fulfils_the_protocol() -> None:
    backend: Backend = Target().backend
    assert list(backend.widths) == sorted(backend.widths)
    assert list(backend.chunk_rows) == [128, 512]


def test_a_prompts_chunk() -> None:
    target = Target()
    stream = target.stream(lane=1, prompt=7, temperature=0.5, seed=9)
    target.backend.prefill_step(stream, 2, 5)
    bucket, token, buffer, table = target.last
    assert bucket.rows == 4
    assert token.tolist() == [2, 3, 4, 0]
    assert buffer["position"].tolist() == [2, 3, 4, 0]
    assert buffer["lane"].tolist() == [1, 1, 1, MEMORY.lanes]
    assert buffer["draw_row"][: bucket.draws].tolist() == [2] * bucket.draws
    assert buffer["temperature"][: bucket.draws].tolist() == [0.5] * bucket.draws
    assert table[1].tolist() == [5, 6, 0, 0], "the loop's pages move up by the scratch page"
    assert not table[[0, 2, 3]].any()


def test_the_whole_prompts_draw_is_the_first_token() -> None:
    target = Target()
    stream = target.stream(prompt=140)
    target.step.orders.extend([np.array([7, 7]), np.array([31, 31])])
    target.backend.prefill_step(stream, 0, 128)
    target.backend.prefill_step(stream, 128, 140)
    result = target.backend.first(stream)
    assert (result.draws, result.logprobs, result.error) == ([31], None, None)


@pytest.mark.parametrize(("logprobs", "held"), [(None, 0), (2, 0), (None, 2), (0, 1)])
def test_what_will_be_read_is_sent_to_the_host_at_once_and_nothing_else(logprobs: int | None, held: int) -> None:
    target = Target()
    target.backend.held = lambda stream: True
    one, two = target.stream(0), target.stream(2, logprobs=logprobs)
    ticket = target.backend.verify([Window(one, 5, 41, held=held), Window(two, 5, 51)])
    drawn: Any = ticket.drawn
    shown: Any = ticket.token
    assert drawn.token.sent
    assert shown.sent == (held > 0)
    assert [array.sent for array in drawn[1:]] == [logprobs is not None] * 3


def test_so_is_the_first_token() -> None:
    target = Target()
    stream = target.stream(prompt=5)
    target.backend.prefill_step(stream, 0, 5)
    drawn: Any = target.backend._first[stream.lane].drawn
    assert [array.sent for array in drawn] == [True, False, False, False]


def test_windows_lie_end_to_end() -> None:
    target = Target()
    one, two = target.stream(0, temperature=0.25), target.stream(2, seed=(3 << 32) + 4, min_tokens=4, stop_ids=(9,))
    ticket = target.backend.verify([Window(one, 6, 41, (42, 43)), Window(two, 5, 51)])
    bucket, token, buffer, _ = target.last
    assert bucket.rows == 4
    assert token.tolist() == [41, 42, 43, 51]
    assert buffer["position"].tolist() == [6, 7, 8, 5]
    assert buffer["lane"].tolist() == [0, 0, 0, 2]
    assert buffer["draw_row"].tolist() == [0, 1, 2, 3]
    assert buffer["temperature"].tolist() == [0.25, 0.25, 0.25, 1.0]
    assert buffer["seed_high"].tolist() == [0, 0, 0, 3]
    assert buffer["banned_until"].tolist() == [0, 0, 0, len(two.request.prompt) + 4]
    results = target.backend.read(ticket)
    assert [result.draws for result in results] == [[100, 101, 102], [103]]


def test_padding_rows_go_to_the_scratch_lane() -> None:
    target = Target()
    target.backend.verify([Window(target.stream(), 5, 1, (2, 3, 4, 5))])
    _, _, buffer, table = target.last
    assert buffer["lane"].tolist() == [0] * 5 + [MEMORY.lanes] * 3
    assert table[MEMORY.lanes].tolist() == [0] * 4


def test_a_stream_that_runs_ahead_takes_its_token_on_the_device() -> None:
    target = Target()
    stream = target.stream()
    target.backend.verify([Window(stream, 5, 60)])
    target.backend.verify([Window(stream, 6, None)])
    assert target.last[1].tolist() == [FIRST, 0]
    assert target.last[2]["position"][0] == 6
    assert target.last[2]["behind"].tolist() == [1, 0]
    assert target.last[2]["tile_behind"].tolist() == [1, 0]


def test_a_listener_is_told_all_that_a_window_behind_an_unread_one_may_be() -> None:
    target, told = Target(), []
    stream, other = target.stream(0), target.stream(1)
    target.backend.verify([Window(stream, 5, 60, (1, 2, 3))])
    target.backend.listener = lambda features, places, runs: told.append(list(runs))
    target.step.features = "rows"
    target.backend.verify([Window(stream, 6, None), Window(other, 5, 61)])
    assert told == [[Run(0, 6, 4), Run(1, 5, 1)]]


def test_a_lane_without_a_window_in_flight_has_nothing_to_stand_behind() -> None:
    target = Target()
    stream, other = target.stream(0), target.stream(1)
    target.backend.verify([Window(stream, 5, 60)])
    with pytest.raises(WindowMismatch, match="lanes \\[1\\] have no window"):
        target.backend.verify([Window(stream, 6, None), Window(other, 5, None)])


def test_what_was_read_is_given_up_and_no_window_can_wait_for_it() -> None:
    target = Target()
    stream = target.stream()
    ticket = target.backend.verify([Window(stream, 5, 60)])
    target.backend.verify([Window(stream, 6, None)])
    target.backend.read(ticket)
    last = target.backend.verify([Window(stream, 7, None)])
    target.backend.read(last)
    with pytest.raises(WindowMismatch, match="read already"):
        target.backend.verify([Window(stream, 8, None)])


def test_what_was_read_is_given_back_but_for_prompts() -> None:
    target = Target()
    stream = target.stream()
    target.backend.prefill_step(stream, 0, 5)
    target.backend.first(stream)
    assert target.step.given_back == []
    ticket = target.backend.verify([Window(stream, 5, 60, (1, 2))])
    assert target.step.given_back == []
    target.backend.read(ticket)
    assert target.step.given_back == [(target.last[0], 4)]


def test_what_nobody_is_left_to_read_is_given_up() -> None:
    target = Target()
    one, two = target.stream(0), target.stream(1)
    target.backend.verify([Window(one, 5, 60), Window(two, 5, 61)])
    target.backend.release(one)
    assert target.backend._latest is not None
    target.backend.release(two)
    assert target.backend._latest is None


def test_plain_windows_in_company_take_the_draws_of_the_device() -> None:
    target = Target()
    one, two, three = target.stream(0), target.stream(2), target.stream(1)
    target.backend.verify([Window(one, 5, 60), Window(two, 9, 60)])
    target.backend.verify([Window(two, 10, None), Window(three, 5, 62), Window(one, 6, None)])
    assert target.last[1].tolist() == [FIRST, 62, FIRST, 0]
    assert target.last[2]["position"][:3].tolist() == [10, 5, 6]
    assert target.last[2]["behind"].tolist() == [1, 0, 1, 0]


def test_drafts_that_wait_on_the_device_are_stood_in_for() -> None:
    target = Target()
    one, two = target.stream(0), target.stream(2)
    target.backend.held = lambda stream: stream is one
    target.backend.verify([Window(one, 5, 60, held=2), Window(two, 9, 61, held=1)])
    assert target.last[1].tolist() == [60, HELD, HELD - 1, 61, 61, 0, 0, 0]


def test_logprobs_are_those_of_the_windows_rows() -> None:
    target = Target()
    plain, asked, own_only = target.stream(0), target.stream(1, logprobs=2), target.stream(2, logprobs=0)
    ticket = target.backend.verify([Window(plain, 5, 1), Window(asked, 5, 2, (3,)), Window(own_only, 5, 4)])
    results = target.backend.read(ticket)
    assert results[0].logprobs is None
    entries: Any = results[1].logprobs
    assert [(entry.token, entry.logprob) for entry in entries] == [(101, -1.0), (102, -2.0)]
    assert entries[1].top == ((40, -40.0), (41, -41.0))
    last: Any = results[2].logprobs
    assert (last[0].logprob, last[0].top) == (-3.0, ())


def test_numbers_that_are_not_finite_concern_their_window_only() -> None:
    target = Target()
    one, two = target.stream(0), target.stream(1)
    target.step.orders.append(np.array([5, -1, 6, 0]))
    results = target.backend.read(target.backend.verify([Window(one, 5, 1, (2,)), Window(two, 5, 3)]))
    assert "not finite" in (results[0].error or "")
    assert results[1].error is None


def test_a_lane_forgets_its_last_stream() -> None:
    target = Target()
    first = target.stream(1, temperature=0.0, presence_penalty=1.0)
    target.backend.verify([Window(first, 5, 1)])
    target.backend.release(first)
    second = target.stream(1, temperature=0.7)
    second.pages = [9]
    target.backend.verify([Window(second, 5, 1)])
    _, _, buffer, table = target.last
    assert table[1].tolist() == [10, 0, 0, 0]
    assert buffer["presence"][0] == 0
    assert buffer["temperature"][0] == np.float32(0.7)


def test_a_lanes_next_stream_may_get_the_same_pages() -> None:
    target = Target()
    for other in (0, 2):
        target.backend.verify([Window(target.stream(1), 5, 1)])
        target.backend.verify([Window(target.stream(other), 5, 1)])
        assert target.last[3][1].tolist() == [5, 6, 0, 0]


def test_pages_that_grow_reach_the_table() -> None:
    target = Target()
    stream = target.stream()
    target.backend.verify([Window(stream, 5, 1)])
    before = target.last[3]
    stream.pages.append(7)
    target.backend.verify([Window(stream, 6, 1)])
    assert before[0].tolist() == [1, 2, 0, 0]
    assert target.last[3][0].tolist() == [1, 2, 8, 0]


def test_bias_and_stops_reach_the_lanes_tables() -> None:
    target = Target()
    target.stream(1, logit_bias=((3, 2.5), (TINY.vocab - 1, -100.0)), min_tokens=1, stop_ids=(8, 2))
    tables = target.backend.state.tables
    assert np.asarray(tables.bias[1]).nonzero()[0].tolist() == [3, TINY.vocab - 1]
    assert np.asarray(tables.bias[1])[[3, TINY.vocab - 1]].tolist() == [2.5, -100.0]
    assert np.asarray(tables.stops[1])[:3].tolist() == [2, 8, TINY.vocab]
    assert not np.asarray(tables.bias[0]).any()


def test_a_forward_that_fails_breaks_the_backend() -> None:
    target = Target()
    stream = target.stream()
    target.step.orders.append(RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        target.backend.verify([Window(stream, 5, 1)])
    assert str(target.backend.broken) == "out of memory"


def test_a_read_that_fails_breaks_the_backend() -> None:
    class Lost:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("device lost")

    target = Target()
    target.step.orders.append(Lost())
    ticket = target.backend.verify([Window(target.stream(), 5, 1)])
    assert target.backend.broken is None
    with pytest.raises(RuntimeError, match="device lost"):
        target.backend.read(ticket)
    assert str(target.backend.broken) == "device lost"


@pytest.mark.parametrize("kept", [-1, 3])
def test_more_rows_than_were_verified_cannot_be_kept(kept: int) -> None:
    target = Target()
    window = Window(target.stream(), 5, 1, (2,))
    target.backend.keep([window], [2])
    with pytest.raises(WindowMismatch, match="window of 2"):
        target.backend.keep([window], [kept])


def test_sizes_of_the_state() -> None:
    state = empty_state(MODEL, MEMORY)
    lanes = MEMORY.lanes + 1
    assert {leaf.shape[0] for layer in state.cache for leaf in layer} == {MEMORY.pages + 1}
    assert sum(table.nbytes for table in state.tables) == lanes * bytes_per_lane(TINY.vocab, 256)
    assert (np.asarray(state.tables.stops) == TINY.vocab).all()


def test_a_listener_is_told_every_forwards_features_and_rows() -> None:
    target, told = Target(), []
    stream, other = target.stream(0), target.stream(1)
    target.backend.listener = lambda features, places, runs: told.append((features, places.tolist(), list(runs)))
    target.backend.prefill_step(stream, 0, 3)
    assert told == [], "a step without taps has none"
    target.step.features = "rows"
    target.backend.prefill_step(stream, 3, 5)
    windows = [Window(stream, 5, 1, (2, 3)), Window(other, 5, 1)]
    target.backend.verify(windows)
    assert told == [
        ("rows", [[0, 0], [3, 4]], [Run(0, 3, 2)]),
        ("rows", [[0, 0, 0, 1], [5, 6, 7, 5]], [Run(0, 5, 3), Run(1, 5, 1)]),
    ]
    assert list(target.backend.pages.held(1)) == [4, 5]
    target.step.orders.append(RuntimeError("out of memory"))
    with pytest.raises(RuntimeError):
        target.backend.verify(windows)
    assert len(told) == 2, "a forward that was not queued has none"
