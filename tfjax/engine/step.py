"""The jitted forward: flat rows in, draws out, one compiled program per bucket of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from flax import nnx

from tfjax.engine.handed_round import HandedRound, copied, written_last
from tfjax.engine.kept_programs import NOTHING_KEPT, Compile, KeptPrograms, Program
from tfjax.engine.rows_buffer import FIELDS, LANE_AND_POSITION, unpack
from tfjax.engine.shapes import int32
from tfjax.engine.unread import Unread, landed, resolved
from tfjax.kernels.draw import Drawn, DrawRules, LaneTables, draw_as_read
from tfjax.kernels.paged_attention import Tiles
from tfjax.kernels.routes import Route
from tfjax.models.rows import Rows

FEATURES_KEPT = 12
"""Later forwards of a verify bucket that leave features and places alone: more than a drafter lets wait."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Shapes of one compiled forward.

    Attributes:
        rows: rows that a forward of this bucket computes; fewer are padded.
        draws: rows that may be drawn from (a prompt needs only its last).
        tile_rows: rows that attention takes at a time from one lane.
    """

    rows: int
    draws: int
    tile_rows: int


class State(NamedTuple):
    """Everything on the device that a forward changes: the model's cache and the lanes' tables.

    `unread` is None where no forward is ever queued behind one that the host has not read.
    """

    cache: Any
    tables: LaneTables
    unread: Unread | None = None


class Stepped(NamedTuple):
    """What a forward gives.

    Attributes:
        drawn: of the drawn rows.
        token: int32 [rows], the rows' tokens, negative for drafts that were not made.
        places: int32 [2, rows], lane and position of each row.
        logits: float32 [draws, V], of the same rows.
        features: [rows, taps * D], the residual stream after each tapped layer; None where nothing is tapped.
        state: the new one.
    """

    drawn: Drawn
    token: jax.Array
    places: jax.Array
    logits: jax.Array
    features: jax.Array | None
    state: State


class Step:
    """A model's forward, compiled per bucket. Parameters are arguments, never constants of the program."""

    def __init__(
        self,
        model: nnx.Module,
        taps: Sequence[int] = (),
        route: Route = Route.REFERENCE,
        kept: KeptPrograms = NOTHING_KEPT,
        *,
        hands_round: bool = False,
    ):
        """`taps` are the layers whose features every forward tells, `route` is the draw's.

        Where it `hands_round`, results lie in memory of earlier ones (see handed_round): the bucket's next call takes
        logits away, the one after FEATURES_KEPT others features and places, and draws go with `give_back`.
        """
        self.taps, self.route, self.kept, self.hands_round = tuple(taps), route, kept, hands_round
        self.definition, parameters = nnx.split(model)
        self.parameters, self._tree = jax.tree.flatten(parameters)
        self._compiled: dict[Bucket, Any] = {}
        self._spare: dict[Bucket, Spare] = {}
        self._like: Any = None

    def forward(
        self,
        bucket: Bucket,
        parameters: Sequence[jax.Array],
        state: State,
        token: jax.Array,
        matrix: jax.Array,
        page_table: jax.Array,
    ) -> Stepped:
        """The traced function.

        Shapes: token int32 [rows] (negative ones: see unread), matrix int32 [fields, rows] (see rows_buffer),
        page_table int32 [lanes, pages].
        """
        model: Any = nnx.merge(self.definition, jax.tree.unflatten(self._tree, parameters))
        if state.unread is not None:
            token, matrix = resolved(state.unread, token, matrix)
        field, shown = unpack(matrix), token
        token = jnp.maximum(token, 0)
        tiles = Tiles(field["tile_count"][0], field["tile_start"], field["tile_lane"], field["tile_last"])
        rows = Rows(token, field["lane"], field["position"], tiles, page_table)
        hidden, cache, features = model(state.cache, rows, tile_rows=bucket.tile_rows, taps=self.taps)
        tables = state.tables._replace(history=state.tables.history.at[rows.lane, rows.position].set(token))
        logits = model.logits(hidden[field["draw_row"][: bucket.draws]])
        read = partial(rules_and_lanes, draws=bucket.draws)
        drawn = draw_as_read(logits, read, matrix, tables, route=self.route)
        unread = state.unread
        if unread is not None and bucket.draws == bucket.rows:
            unread = landed(unread, shown, drawn.token, rows.lane)
        return Stepped(drawn, shown, matrix[LANE_AND_POSITION], logits, features, State(cache, tables, unread))

    def handed(
        self,
        bucket: Bucket,
        parameters: Sequence[jax.Array],
        given: tuple[State, Stepped],
        token: jax.Array,
        matrix: jax.Array,
        page_table: jax.Array,
    ) -> Stepped:
        """The same; results lie in the memory of the given ones."""
        state, old = given
        token, matrix = copied(token, matrix)
        stepped = self.forward(bucket, parameters, state, token, matrix, page_table)
        nothing: Any = None
        results: Stepped = written_last(stepped._replace(state=nothing), old)
        return results._replace(state=stepped.state)

    def compile(self, bucket: Bucket, state: State, page_table: jax.Array) -> None:
        """Compile one bucket ahead of its first use."""
        if bucket not in self._compiled:
            self.prepare(bucket, state, page_table)()

    def prepare(self, bucket: Bucket, state: State, page_table: jax.Array) -> Compile:
        """Lower one bucket; what is returned compiles it."""
        token, matrix = int32(bucket.rows), int32(len(FIELDS), bucket.rows)
        anything: Any = 0
        drawn = Drawn(anything, anything, anything, anything)
        result = Stepped(drawn, anything, anything, anything, anything if self.taps else None, state)
        name, call, given = f"step {bucket} {self.taps} {self.route}", cast("Any", self.forward), cast("Any", state)
        if self.hands_round:
            like = self._results(bucket, (self.parameters, state, token, matrix, page_table))
            # A prompt's features are taken in at once.
            self._spare[bucket] = Spare(like, FEATURES_KEPT if bucket.draws == bucket.rows else 0)
            name, call, given = f"{name} handed round", self.handed, (state, like)
        arguments = (self.parameters, given, token, matrix, page_table)
        program = Program(name, partial(call, bucket), arguments, donated=1, result=result)
        return self.kept.prepare(program, partial(self._compiled.__setitem__, bucket))

    def _results(self, bucket: Bucket, arguments: tuple[Any, ...]) -> Any:
        """Shapes of a bucket's results, without a state.

        The forward is traced for the first bucket alone, which takes a second: rows and draws are all that differs.
        """
        if self._like is None:
            self._like = jax.eval_shape(partial(self.forward, bucket), *arguments)._replace(state=None)

        def rows_of(like: Any, rows: int) -> Any:
            return jax.tree.map(lambda one: one.update(shape=(rows, *one.shape[1:])), like)

        like, rows, draws = self._like, bucket.rows, bucket.draws
        return like._replace(
            drawn=rows_of(like.drawn, draws),
            token=rows_of(like.token, rows),
            places=int32(2, rows),
            logits=rows_of(like.logits, draws),
            features=rows_of(like.features, rows),
        )

    def __call__(self, bucket: Bucket, state: State, token: Any, matrix: Any, page_table: jax.Array) -> Stepped:
        """Queue one forward. `state` is donated: use the returned one from here on."""
        spare = self._spare.get(bucket)
        given = state if spare is None else (state, spare.take())
        stepped: Stepped = self._compiled[bucket](self.parameters, given, token, matrix, page_table)
        if spare is not None:
            spare.give(stepped)
        return stepped

    def give_back(self, bucket: Bucket, drawn: Drawn, token: jax.Array) -> None:
        """Draws and tokens that nobody reads again, so that later ones can lie there."""
        if bucket in self._spare:
            self._spare[bucket].drawn.give((drawn, token))


class Spare:
    """Memory for a bucket's results.

    Attributes:
        drawn: for draws and tokens, which their readers give back.
    """

    def __init__(self, like: Stepped, features_kept: int) -> None:
        self.drawn = HandedRound((like.drawn, like.token))
        self._logits = HandedRound(like.logits)
        self._told = HandedRound((like.features, like.places), features_kept)

    def take(self) -> Stepped:
        """Results to overwrite, without a state."""
        (drawn, token), (features, places) = self.drawn.take(), self._told.take()
        nothing: Any = None
        return Stepped(drawn, token, places, self._logits.take(), features, nothing)

    def give(self, stepped: Stepped) -> None:
        """What a call gave, but for the draws."""
        self._logits.give(stepped.logits)
        self._told.give((stepped.features, stepped.places))


def rules_and_lanes(matrix: jax.Array, draws: int) -> tuple[DrawRules, jax.Array]:
    """The rules of a forward's draws and the lane of each. Shape: int32 [fields, rows] (see rows_buffer)."""
    field = unpack(matrix)
    row = field["draw_row"][:draws]
    return rules_of(field, field["position"][row], draws), field["lane"][row]


def rules_of(field: dict[str, jax.Array], position: jax.Array, draws: int) -> DrawRules:
    """The rules of draws after these positions. Shape: int32 [draws]."""

    def of(name: str) -> jax.Array:
        return field[name][:draws]

    return DrawRules(
        position=position + 1,
        temperature=of("temperature"),
        top_k=of("top_k"),
        top_p=of("top_p"),
        min_p=of("min_p"),
        seed=jnp.stack([of("seed_low"), of("seed_high")], -1),
        presence=of("presence"),
        frequency=of("frequency"),
        repetition=of("repetition"),
        prompt_end=of("prompt_end"),
        biased=of("biased") != 0,
        stops_banned=position + 1 < of("banned_until"),
        logprobs=of("logprobs") != 0,
    )
