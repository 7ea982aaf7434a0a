"""The jitted work of a drafting model: absorbing rows, and drafting several tokens in one dispatch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.engine.drafters.drawing import Drafts, draw_draft, no_drafts
from tfjax.engine.kept_programs import Compile
from tfjax.engine.rows_buffer import FIELDS, unpack
from tfjax.engine.shapes import int32
from tfjax.engine.step import Bucket, State, rules_of
from tfjax.kernels.draw import NOT_FINITE
from tfjax.kernels.matmul import rows_matmul
from tfjax.kernels.paged_attention import Tiles
from tfjax.models.rows import Rows

TILE_ROWS = 2
"""Rows of a lane that attention takes at a time in a hold. One alone may be multiplied in another way."""


@dataclass(frozen=True, slots=True)
class HoldBucket:
    """Shapes of one compiled hold.

    Attributes:
        streams: most streams that it drafts for.
        rows: rows of its first forward, which brings the streams up to date.
        step_rows: rows of each further forward, one a stream and padding.
        depth: most drafts of a stream. How many are made is told at run time.
    """

    streams: int
    rows: int
    step_rows: int
    depth: int


class _Drafting(NamedTuple):
    """What a hold carries from one draft to the next: last token int32 [S], all drafts, state."""

    token: jax.Array
    drafts: Drafts
    cache: Any
    history: jax.Array


class DraftStep:
    """A drafting model's programs, compiled per bucket. Parameters are arguments, never constants of a program."""

    def __init__(self, module: nnx.Module, ids: jax.Array):
        """`ids` int32 [C] is the target's token of each row of the module's head; further rows are padding."""
        self.definition, parameters = nnx.split(module)
        leaves, self._tree = jax.tree.flatten(parameters)
        self.parameters = (ids, leaves)
        self._compiled: dict[Hashable, Any] = {}

    def _model(self, leaves: Any) -> Any:
        return nnx.merge(self.definition, jax.tree.unflatten(self._tree, leaves))

    # The traced functions

    def absorbing(
        self, bucket: Bucket, parameters: Any, state: State, token: jax.Array, matrix: jax.Array, page_table: jax.Array
    ) -> State:
        """Write rows to the cache and the history; nothing is drawn.

        Shapes: token int32 [rows], matrix int32 [fields, rows] (see rows_buffer), page_table int32 [lanes, pages].
        """
        rows = _rows_of(unpack(matrix), token, page_table)
        _, cache, _ = self._model(parameters[1])(state.cache, rows, tile_rows=bucket.tile_rows)
        return _written(state, cache, rows)

    def holding(
        self,
        bucket: HoldBucket,
        parameters: Any,
        state: State,
        token: jax.Array,
        matrix: jax.Array,
        depth: jax.Array,
        page_table: jax.Array,
    ) -> tuple[Drafts, State]:
        """Write the streams' newest rows, and draft after the last row of each.

        Shapes: token int32 [rows], matrix int32 [fields, rows], depth int32 [S] (drafts wanted), page_table
        int32 [lanes, pages] -> drafts and the new state.
        """
        ids, leaves = parameters
        model = self._model(leaves)
        field = unpack(matrix)
        rows = _rows_of(field, token, page_table)
        hidden, cache, _ = model(state.cache, rows, tile_rows=TILE_ROWS)
        state = _written(state, cache, rows)
        drawn_row = field["draw_row"][: bucket.step_rows]
        last = drawn_row[: bucket.streams]
        lane, position = rows.lane[last], rows.position[last]
        rules, banned_until = rules_of(field, position, bucket.streams), field["banned_until"][: bucket.streams]

        def drawn(hidden: jax.Array, at: jax.Array, history: jax.Array) -> tuple[jax.Array, jax.Array]:
            logits = rows_matmul(hidden, model.head_weight)[: bucket.streams, : ids.shape[0]]
            own = rules._replace(position=at + 1, stops_banned=at + 1 < banned_until)
            return draw_draft(logits, ids, own, state.tables._replace(history=history), lane)

        def one_more(i: jax.Array, done: _Drafting) -> _Drafting:
            wanted = i < depth
            at = jnp.where(wanted, position + i, 0)
            step = _step_rows(bucket, done.token, jnp.where(wanted, lane, page_table.shape[0] - 1), at, page_table)
            hidden, cache, _ = model(done.cache, step, tile_rows=TILE_ROWS)
            history = done.history.at[step.lane, step.position].set(step.token)
            token, confidence = drawn(hidden, at, history)
            token = jnp.where(wanted, token, NOT_FINITE)
            return _Drafting(token, done.drafts.with_draft(i, token, confidence), cache, history)

        first, confidence = drawn(hidden[drawn_row], position, state.tables.history)
        drafts = no_drafts(bucket.streams, bucket.depth).with_draft(0, first, confidence)
        start = _Drafting(first, drafts, state.cache, state.tables.history)
        done = jax.lax.fori_loop(1, jnp.max(depth), one_more, start)
        return done.drafts, State(done.cache, state.tables._replace(history=done.history))

    # Their compiled forms

    def prepare_absorbing(self, bucket: Bucket, state: State, page_table: jax.Array) -> Compile:
        """Lower `absorbing` for one bucket; what is returned compiles it."""
        shapes = (int32(bucket.rows), int32(len(FIELDS), bucket.rows), page_table)
        return self._prepare(bucket, self.absorbing, state, shapes)

    def prepare_holding(self, bucket: HoldBucket, state: State, page_table: jax.Array) -> Compile:
        """The same for `holding`."""
        shapes = (
            int32(bucket.rows),
            int32(len(FIELDS), bucket.rows),
            int32(bucket.streams),
            page_table,
        )
        return self._prepare(bucket, self.holding, state, shapes)

    def _prepare(self, bucket: Hashable, traced: Callable[..., Any], state: State, shapes: tuple[Any, ...]) -> Compile:
        def program(parameters: Any, state: State, *arrays: Any) -> Any:
            return traced(bucket, parameters, state, *arrays)

        lowered = jax.jit(program, donate_argnums=1).lower(self.parameters, state, *shapes)

        def compile_it() -> None:
            self._compiled[bucket] = lowered.compile()

        return compile_it

    def absorb(self, bucket: Bucket, state: State, token: Any, matrix: Any, page_table: jax.Array) -> State:
        """Queue `absorbing`. `state` is donated: use the returned one from here on."""
        new: State = self._compiled[bucket](self.parameters, state, token, matrix, page_table)
        return new

    def hold(
        self, bucket: HoldBucket, state: State, token: Any, matrix: Any, depths: Any, page_table: jax.Array
    ) -> tuple[Drafts, State]:
        """Queue `holding`. `state` is donated: use the returned one from here on."""
        result: tuple[Drafts, State] = self._compiled[bucket](self.parameters, state, token, matrix, depths, page_table)
        return result


def _rows_of(field: dict[str, jax.Array], token: jax.Array, page_table: jax.Array) -> Rows:
    tiles = Tiles(field["tile_count"][0], field["tile_start"], field["tile_lane"], field["tile_last"])
    return Rows(token, field["lane"], field["position"], tiles, page_table)


def _written(state: State, cache: Any, rows: Rows) -> State:
    history = state.tables.history.at[rows.lane, rows.position].set(rows.token)
    return State(cache, state.tables._replace(history=history))


def _step_rows(bucket: HoldBucket, token: jax.Array, lane: jax.Array, at: jax.Array, page_table: jax.Array) -> Rows:
    """One row a stream, each a tile of its own, then padding. Shapes: [S] each -> rows [step_rows]."""
    padding = (0, bucket.step_rows - bucket.streams)
    scratch = page_table.shape[0] - 1
    tiles = Tiles(jnp.int32(bucket.streams), jnp.arange(bucket.streams, dtype=jnp.int32), lane, at)
    return Rows(
        jnp.pad(jnp.maximum(token, 0), padding),
        jnp.pad(lane, padding, constant_values=scratch),
        jnp.pad(at, padding),
        tiles,
        page_table,
    )
