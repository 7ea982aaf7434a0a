"""Whether device kernels give what the reference operators give.

The proof of equal bits does not see a value that is wrong in every forward alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tfjax.engine.kept_programs import Compile
from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.engine.step import Bucket, State, Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.noise import gumbel
from tfjax.kernels.paged_attention import BLOCK_KEYS, PAGE_ROWS
from tfjax.kernels.routes import Route

MOST_DISTANCE = 0.4
"""Median, over the rows of a forward, of the length of the logits' difference over the length of the reference's.

Random weights in bfloat16 are 0.03 away from float32, with experts 0.09; an operator that computes something else is
about 1 away.
"""

MOST_LACK = 1e-3
"""What a drawn token's score may lack of the best one's: near ties may fall either way."""

FORWARDS = 2
TEMPERATURE, SEED = 0.8, 77


class _Rows(NamedTuple):
    """Shapes: logits float32 [R, V]; drawn int32 [R]."""

    logits: NDArray[np.float32]
    drawn: NDArray[np.int32]


class Reference:
    """The first rows of a stacked model by the reference operators, on a cache of one page."""

    def __init__(self, model: LoadedModel, bucket: Bucket):
        """Nothing is compiled yet."""
        form = model.family.stacked
        assert form is not None
        module: Any = nnx.merge(*nnx.split(model.module))
        module.route = Route.REFERENCE
        self.bucket, self.vocab, self.step = bucket, model.config.vocab, Step(module)
        cache = form.empty_cache(model.config, 2, PAGE_ROWS, 2, model.dtype)
        self.table = np.zeros((2, BLOCK_KEYS // PAGE_ROWS), np.int32)
        self.state = State(cache, empty_tables(2, self.vocab, BLOCK_KEYS))

    def prepare(self) -> Compile:
        """Lower its program; what is returned compiles it."""
        return self.step.prepare(self.bucket, self.state, jnp.asarray(self.table))

    def rows(self) -> _Rows:
        """Computes them, after `prepare` and what it returned."""
        found, self.state = _first_rows(self.step, self.bucket, self.state, self.table, self.vocab)
        return found


def how_far(backend: TargetBackend, reference: Reference) -> str:
    """How the kernels' first rows differ from the reference's, or their draws from their logits; empty for none."""
    bucket = backend.plan.verify[0]
    table = np.zeros((backend.memory.lanes + 1, backend.memory.pages_per_lane), np.int32)
    ours, backend.state = _first_rows(backend.step, bucket, backend.state, table, backend.vocab)
    wanted = reference.rows()
    apart = np.linalg.norm(ours.logits - wanted.logits, axis=1) / np.linalg.norm(wanted.logits, axis=1)
    distance = float(np.median(apart.reshape(FORWARDS, -1), 1).max())
    if not distance <= MOST_DISTANCE:
        return f"logits differ from the reference operators' by {distance:.2g} of their length, {MOST_DISTANCE} at most"
    lack = float(_lack(ours).max())
    if not lack <= MOST_LACK:
        return f"a drawn token's score is {lack:.2g} below the best one's, {MOST_LACK} at most"
    return ""


def _first_rows(step: Step, bucket: Bucket, state: State, table: NDArray[np.int32], vocab: int) -> tuple[_Rows, State]:
    """Logits and draws of the first rows of a prompt in lane 0 and page 1; every other row is drawn with noise."""
    table[0, 0] = 1
    found = []
    for start in range(0, FORWARDS * bucket.rows, bucket.rows):
        token = _tokens(start + np.arange(bucket.rows), vocab)
        buffer = RowsBuffer(bucket.rows)
        lay_out(buffer, [Run(0, start, bucket.rows)], tile_rows=bucket.tile_rows, scratch_lane=len(table) - 1)
        buffer["draw_row"][:] = np.arange(bucket.rows)
        buffer["temperature"][:] = TEMPERATURE * (np.arange(bucket.rows) % 2)
        buffer["seed_low"][:] = SEED
        stepped = step(bucket, state, token, buffer.matrix, jnp.asarray(table))
        state = stepped.state
        found.append(_Rows(np.asarray(stepped.logits), np.asarray(stepped.drawn.token)))
    return _Rows(*(np.concatenate(parts) for parts in zip(*found, strict=True))), state


def _tokens(position: NDArray[Any], vocab: int) -> NDArray[np.int32]:
    return (position * 7919 % vocab).astype(np.int32)


def _lack(rows: _Rows) -> NDArray[np.float32]:
    """How far each drawn token's score is below the best one's. Shape: [R]."""
    count, vocab = rows.logits.shape
    position = np.arange(count)
    seed = jnp.tile(jnp.array([SEED, 0], jnp.uint32), (count, 1))
    noise = np.asarray(gumbel(seed, jnp.asarray(position + 1, jnp.int32), jnp.arange(vocab)))
    noisy = (position % 2 == 1)[:, None]
    score = np.where(noisy, rows.logits / np.float32(TEMPERATURE) + noise, rows.logits)
    lack: NDArray[np.float32] = score.max(1) - score[position, np.maximum(rows.drawn, 0)]
    return np.where(rows.drawn < 0, np.inf, lack)
