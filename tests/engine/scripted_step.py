"""A Step without a model: logits are an exact function of the rows that a forward may see, with faults to order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.engine.rows_buffer import RowsBuffer
from tfjax.engine.step import Bucket, State, Stepped
from tfjax.kernels.draw import Drawn
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.models.rows import LayerCache

VOCAB = 32
LAYERS = 2

Fault = Callable[["Forward", NDArray[np.float32], NDArray[np.float32]], None]
"""Changes a forward's hidden rows [rows, 4] and logits [rows, V] in place."""


class Forward:
    """What a fault may look at: the bucket, each row's position and lane, and how many rows are no padding."""

    def __init__(self, bucket: Bucket, buffer: RowsBuffer, scratch_lane: int):
        self.bucket = bucket
        self.position = buffer["position"].copy()
        self.lane = buffer["lane"].copy()
        self.used = int((self.lane != scratch_lane).sum())


class ScriptedStep:
    """Keys are the token and its position, logits a sum over the keys that a row sees; `fault` breaks either."""

    taps = ()
    parameters = ()

    def __init__(self, lanes: int, pages: int, fault: Fault | None = None):
        shape = (pages + 1, 1, PAGE_ROWS, 4)
        layers = [LayerCache(np.zeros(shape, np.float32), np.zeros(shape, np.float32)) for _ in range(LAYERS)]
        self.state = State(tuple(layers), None)
        self.lanes = lanes
        self.fault = fault
        self.buckets: list[Bucket] = []

    def prepare(self, bucket: Bucket, state: Any, page_table: Any) -> Callable[[], None]:
        """There is nothing to compile."""
        return lambda: None

    def __call__(self, bucket: Bucket, state: State, token: Any, matrix: Any, page_table: Any) -> Any:
        self.buckets.append(bucket)
        buffer = RowsBuffer(bucket.rows)
        buffer.matrix[:] = matrix
        forward = Forward(bucket, buffer, self.lanes)
        table = np.asarray(page_table)
        hidden = np.stack([token, forward.position, token * 3 % 7, token * 0 + 1], 1).astype(np.float32)
        logits = np.zeros((bucket.rows, VOCAB), np.float32)
        cache: list[LayerCache] = [LayerCache(*(np.asarray(pool).copy() for pool in layer)) for layer in state.cache]
        place = (table[forward.lane, forward.position // PAGE_ROWS], forward.position % PAGE_ROWS)
        for layer in cache:
            layer.keys[place[0], 0, place[1]] = hidden
        for row in range(bucket.rows):
            logits[row] = self._logits(cache[0].keys, table[forward.lane[row]], int(forward.position[row]))
        if self.fault is not None:
            self.fault(forward, hidden, logits)
        for layer in cache:
            layer.keys[place[0], 0, place[1]] = hidden
            layer.values[place[0], 0, place[1]] = hidden * 2
        drawn = logits[buffer["draw_row"][: bucket.draws]]
        nothing: Any = None
        tokens: Any = Drawn(drawn.argmax(1) + self.drawn_off(forward), nothing, nothing, nothing)
        return Stepped(tokens, nothing, nothing, drawn, None, State(tuple(cache), nothing))

    def drawn_off(self, forward: Forward) -> int:
        """What a faulty draw adds to every token."""
        return 0

    @staticmethod
    def _logits(keys: NDArray[np.float32], pages: NDArray[np.int32], position: int) -> NDArray[np.float32]:
        """Integers, so that the sum is exact: every token at or before the position counts."""
        seen = keys[pages].swapaxes(1, 2).reshape(-1, 4)[: position + 1]
        weight = (np.arange(4)[:, None] * 5 + np.arange(VOCAB)) % 11
        return (seen @ weight).sum(0).astype(np.float32)
