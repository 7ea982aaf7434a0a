"""The jitted work of a drafter that makes whole blocks: absorbing features, and drafting in one dispatch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.engine.drafters.block_plan import BlockBucket, BlockPlan
from tfjax.engine.drafters.drawing import Drafts, draw_draft, no_drafts
from tfjax.engine.kept_programs import NOTHING_KEPT, Compile, KeptPrograms, Program
from tfjax.engine.rows_buffer import FIELDS, unpack
from tfjax.engine.shapes import int32
from tfjax.engine.step import State, rules_of
from tfjax.engine.unread import Unread, asked, waiting
from tfjax.kernels.draw import NOT_FINITE, LaneTables
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.models.rows import Rows

ASK_FIELDS = ("token", "slots", "depth", "first_page")
"""What a hold is told about each stream beside lane, position and sampling: its pending token, rows of its block that
are its own, drafts wanted, and the first page of its context that the drafter knows."""


JOINED = 8
"""Forwards without drafts whose features are taken in together."""


class Told(NamedTuple):
    """What a forward of the target tells: features [rows, taps * target D], and lane and position, int32 [2, rows]."""

    features: jax.Array
    places: jax.Array


class _Walk(NamedTuple):
    """What a hold carries from one draft to the next: last token int32 [S], all drafts, the head's state, history."""

    token: jax.Array
    drafts: Drafts
    markov: Any
    history: jax.Array


class BlockStep:
    """A block drafter's programs, compiled per bucket. Parameters are arguments, never constants of a program."""

    def __init__(self, module: nnx.Module, plan: BlockPlan, kept: KeptPrograms = NOTHING_KEPT):
        self.plan, self.kept = plan, kept
        self.definition, parameters = nnx.split(module)
        self.parameters, self._tree = jax.tree.flatten(parameters)
        self._compiled: dict[Hashable, Any] = {}

    def _model(self, leaves: Any) -> Any:
        return nnx.merge(self.definition, jax.tree.unflatten(self._tree, leaves))

    # The traced functions

    def absorbing(
        self, parameters: Any, cache: Any, features: jax.Array, places: jax.Array, page_table: jax.Array
    ) -> Any:
        """Write the context rows of a forward of the target.

        Shapes: features [rows, taps * target D], places int32 [2, rows] (lane and position), page_table int32
        [lanes, pages] -> the new cache.
        """
        lane, position = places
        nothing = jnp.zeros(1, jnp.int32)
        rows = Rows(jnp.zeros_like(lane), lane, position, Tiles(jnp.int32(0), *[nothing] * 3), page_table)
        return self._model(parameters).absorb(cache, features, rows)

    def holding(
        self,
        bucket: BlockBucket,
        parameters: Any,
        cache: Any,
        tables: LaneTables,
        unread: Unread,
        matrix: jax.Array,
        asks: jax.Array,
        page_table: jax.Array,
    ) -> tuple[Drafts, jax.Array, Any]:
        """Compute a block behind each stream's context, and draw its drafts one after another.

        Shapes: tables and what is unread are the target's, matrix int32 [fields, S] (see rows_buffer: lane and position
        of the pending tokens, and the rules of their draws), asks int32 [ASK_FIELDS, S], page_table int32
        [lanes, pages] -> drafts of the most streams that any hold has, so that all holds give one shape, all that
        wait by lane, and the new cache.
        """
        model = self._model(parameters)
        ids = model.ids[...]
        ask = dict(zip(ASK_FIELDS, asks, strict=True))
        matrix, ask["token"] = asked(unread, matrix, ask["token"])
        field = unpack(matrix)
        lane, position = field["lane"], field["position"]
        rows, seen, known = _block_rows(bucket, field, ask, page_table, model.config.mask_token)
        hidden, cache = model.block(cache, rows, mask_position=seen, read_table=known, tile_rows=bucket.slots)
        slots = hidden.reshape(bucket.streams, bucket.slots, -1)[:, self.plan.first_slot :]
        base = model.logits(slots)
        rules = rules_of(field, position, bucket.streams)

        def one_more(i: jax.Array, done: _Walk) -> _Walk:
            row, at = slots[:, i], position + i + 1
            bias, markov = model.markov(done.markov, done.token, row)
            own = rules._replace(position=at, stops_banned=at < field["banned_until"])
            told = tables._replace(history=done.history)
            token, likely = draw_draft(base[:, i] + bias, ids, own, told, lane, route=model.route)
            sure = model.confidence(row, done.token, i)
            made = jnp.where(i < ask["depth"], token, NOT_FINITE)
            drafts = done.drafts.with_draft(i, made, likely if sure is None else sure)
            token = jnp.maximum(token, 0)
            return _Walk(token, drafts, markov, done.history.at[lane, at].set(token, mode="drop"))

        history = tables.history.at[lane, position].set(ask["token"])
        drafts = no_drafts(bucket.streams, self.plan.depth)
        start = _Walk(ask["token"], drafts, model.markov.start(bucket.streams), history)
        done = jax.lax.fori_loop(0, jnp.minimum(jnp.max(ask["depth"]), slots.shape[1]), one_more, start)
        beyond = self.plan.most_streams - bucket.streams
        drafts = jax.tree.map(lambda rows: jnp.pad(rows, ((0, beyond), (0, 0))), done.drafts)
        return drafts, waiting(unread, lane, done.drafts.token), cache

    # Their compiled forms

    def prepare_absorbing(self, cache: Any, features: jax.ShapeDtypeStruct, page_table: jax.Array) -> Compile:
        """Lower `absorbing` for some rows; what is returned compiles it."""
        rows = features.shape[0]
        return self._prepare(rows, self.absorbing, cache, (features, int32(2, rows), page_table), cache)

    def prepare_holding(self, bucket: BlockBucket, cache: Any, state: State, page_table: jax.Array) -> Compile:
        """The same for `holding`, which is given matrix and asks as one array: each array takes a transfer."""

        def traced(
            parameters: Any, cache: Any, tables: LaneTables, unread: Unread, told: jax.Array, page_table: jax.Array
        ) -> Any:
            matrix, asks = told[: len(FIELDS)], told[len(FIELDS) :]
            return self.holding(bucket, parameters, cache, tables, unread, matrix, asks, page_table)

        told = int32(len(FIELDS) + len(ASK_FIELDS), bucket.streams)
        given = (state.tables, state.unread, told, page_table)
        return self._prepare(bucket, traced, cache, given, (no_drafts(1, 1), 0, cache))

    def prepare_joining(self, features: jax.ShapeDtypeStruct) -> Compile:
        """Let `JOINED` forwards of as many rows be taken in as one."""
        rows = features.shape[0]
        told: Any = Told(features, int32(2, rows))  # type: ignore[arg-type]
        lowered = jax.jit(_join).lower([told] * JOINED)
        return lambda: self._compiled.__setitem__(("join", rows), lowered.compile())

    def joins(self, rows: int) -> bool:
        """Whether forwards of so many rows can be taken in together."""
        return ("join", rows) in self._compiled

    def join(self, told: Sequence[Told]) -> Told:
        """At most `JOINED` of equally many rows as one. The last one fills up: taken in twice it is the same."""
        whole: Told = self._compiled["join", told[0].features.shape[0]]([*told, *[told[-1]] * (JOINED - len(told))])
        return whole

    def _prepare(
        self, key: Hashable, traced: Callable[..., Any], cache: Any, shapes: tuple[Any, ...], result: Any
    ) -> Compile:
        arguments = (self.parameters, cache, *shapes)
        program = Program(f"block step {key} {self.plan}", traced, arguments, donated=1, result=result)
        return self.kept.prepare(program, partial(self._compiled.__setitem__, key))

    def absorb(self, cache: Any, told: Told, page_table: jax.Array) -> Any:
        """Queue `absorbing`. `cache` is donated: use the returned one from here on."""
        return self._compiled[told.features.shape[0]](self.parameters, cache, *told, page_table)

    def hold(
        self, bucket: BlockBucket, cache: Any, state: State, told: Any, page_table: jax.Array
    ) -> tuple[Drafts, jax.Array, Any]:
        """Queue `holding`. `cache` is donated: use the returned one from here on. `state` is the target's.

        Shape: told int32 [fields + ASK_FIELDS, S], matrix and asks.
        """
        program = self._compiled[bucket]
        made: tuple[Drafts, jax.Array, Any] = program(
            self.parameters, cache, state.tables, state.unread, told, page_table
        )
        return made


def _join(told: Sequence[Told]) -> Told:
    return Told(jnp.concatenate([one.features for one in told]), jnp.concatenate([one.places for one in told], 1))


def _block_rows(
    bucket: BlockBucket, field: dict[str, jax.Array], ask: dict[str, jax.Array], page_table: jax.Array, mask_token: int
) -> tuple[Rows, jax.Array, jax.Array]:
    """Every stream's block as one tile, what each row sees of it, and the pages that are read.

    Where the drafter does not know the first pages of a context, it reads a table without them: keys are rotated by
    their position in the stream, so that only the place of the last one shifts. Rows of a block that are not the
    stream's own go to the scratch lane.

    Shapes: -> S * slots rows, int32 [S * slots] (the last place that each sees) and int32 [S, pages].
    """
    lanes, pages = page_table.shape
    lane, position = field["lane"], field["position"]
    place = jnp.arange(bucket.slots)[None]
    own = place < ask["slots"][:, None]
    shifted = ask["first_page"][:, None] + jnp.arange(pages)
    known = jnp.take_along_axis(page_table[lane], jnp.minimum(shifted, pages - 1), 1)
    last = jnp.maximum(position + ask["slots"] - 1 - ask["first_page"] * PAGE_ROWS, 0)
    number = jnp.arange(bucket.streams, dtype=jnp.int32)
    rows = Rows(
        jnp.where(place == 0, ask["token"][:, None], mask_token).reshape(-1),
        jnp.where(own, lane[:, None], lanes - 1).reshape(-1),
        jnp.where(own, position[:, None] + place, 0).reshape(-1),
        Tiles(field["tile_count"][0], number * bucket.slots, number, last),
        page_table,
    )
    return rows, jnp.repeat(last, bucket.slots), jnp.where(shifted < pages, known, 0)
