"""Which forwards are compiled: one per row count that a forward may be padded to."""

from __future__ import annotations

from dataclasses import dataclass

from tfjax.engine.step import Bucket
from tfjax.kernels.gpu.plans import FEW_ROWS

STEP_ROWS = 128
"""From here on a forward takes time in proportion to its rows."""

SINGLE_ROWS = 64
"""Rows of the only bucket where a backend's bits depend on the row count."""

TILE_ROWS = {2: (2,), 4: (4,), 8: (2, 4), 16: (4, 8), 32: (4, 8)}
"""Rows of a verify forward -> tile rows that it is compiled for: low ones for many streams, tall ones for few."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The buckets of one server.

    Attributes:
        arithmetic: `row-invariant`, or `single-bucket` where every forward has the same shape instead.
        verify: buckets of verify forwards, ascending in rows, then in tile rows; every row may be drawn.
        prompt: buckets of prompt chunks, ascending.
    """

    arithmetic: str
    verify: tuple[Bucket, ...]
    prompt: tuple[Bucket, ...]

    @property
    def all(self) -> tuple[Bucket, ...]:
        return tuple(dict.fromkeys((*self.verify, *self.prompt)))

    @property
    def widths(self) -> tuple[int, ...]:
        """Row counts of the verify buckets, ascending."""
        return tuple(dict.fromkeys(bucket.rows for bucket in self.verify))

    def verify_bucket(self, rows: int, widest: int) -> Bucket:
        """The smallest verify bucket that holds `rows`, with the lowest tile that holds a window of `widest` rows.

        A tile taller than the windows in it wastes its other rows; a lower one re-reads the keys more often. Where no
        tile is tall enough, the tallest it is.
        """
        width = next(width for width in self.widths if width >= rows)
        tiles = [bucket for bucket in self.verify if bucket.rows == width]
        return next((bucket for bucket in tiles if bucket.tile_rows >= widest), tiles[-1])

    def prompt_bucket(self, rows: int) -> Bucket:
        """The smallest bucket that holds a prompt chunk of `rows`."""
        return next(bucket for bucket in self.prompt if bucket.rows >= rows)

    def prompt_pieces(self, rows: int) -> list[int]:
        """Rows of the forwards that compute a prompt chunk of `rows`, so that few rows are padding."""
        pieces = []
        while rows:
            holds_all = self.prompt_bucket(rows).rows
            # A wide bucket that would be padded by STEP_ROWS or more gives way to narrower ones.
            piece = min(rows, STEP_ROWS if rows <= holds_all - STEP_ROWS else holds_all)
            pieces.append(piece)
            rows -= piece
        return pieces


def row_invariant_plan(least_rows: int) -> Plan:
    """Buckets for a backend whose rows have the same bits in every shape of `least_rows` or more."""
    verify = tuple(
        Bucket(rows, rows, tile) for rows, tiles in TILE_ROWS.items() if rows >= least_rows for tile in tiles
    )
    # Only a prompt's last row is drawn from, but the head's product needs its least rows too.
    prompt = tuple(Bucket(rows, least_rows, 128) for rows in (STEP_ROWS, 512))
    # Of buckets that differ in their tiles the last is the tallest, which suits a chunk: it is one run of rows.
    chunks = tuple({bucket.rows: bucket for bucket in verify}.values())
    return Plan("row-invariant", verify, (*chunks, *prompt))


def kernel_plan(tile_rows: int) -> Plan:
    """Buckets for device kernels: the row counts that their products have tiles for, all in attention's own blocks."""
    verify = tuple(Bucket(rows, rows, tile_rows) for rows in FEW_ROWS)
    prompt = tuple(Bucket(rows, FEW_ROWS[0], tile_rows) for rows in (STEP_ROWS, 512))
    return Plan("row-invariant", verify, (*verify, *prompt))


def single_bucket_plan() -> Plan:
    """One bucket for everything, for a backend whose bits depend on the shape."""
    only = Bucket(SINGLE_ROWS, SINGLE_ROWS, 16)
    return Plan("single-bucket", (only,), (only,))
