"""Which forwards are compiled: one per row count that a forward may be padded to."""

from __future__ import annotations

from dataclasses import dataclass

from tfjax.engine.step import Bucket

STEP_ROWS = 128
"""From here on a forward takes time in proportion to its rows."""

SINGLE_ROWS = 64
"""Rows of the only bucket where a backend's bits depend on the row count."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The buckets of one server.

    Attributes:
        arithmetic: `row-invariant`, or `single-bucket` where every forward has the same shape instead.
        verify: buckets of verify forwards, ascending; every row may be drawn.
        prompt: buckets of prompt chunks, ascending.
    """

    arithmetic: str
    verify: tuple[Bucket, ...]
    prompt: tuple[Bucket, ...]

    @property
    def all(self) -> tuple[Bucket, ...]:
        return tuple(dict.fromkeys((*self.verify, *self.prompt)))

    def verify_bucket(self, rows: int) -> Bucket:
        """The smallest verify bucket that holds `rows`."""
        return next(bucket for bucket in self.verify if bucket.rows >= rows)

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
    verify = tuple(_verify_bucket(rows) for rows in (2, 4, 8, 16, 32) if rows >= least_rows)
    # Only a prompt's last row is drawn from, but the head's product needs its least rows too.
    prompt = tuple(Bucket(rows, least_rows, 128) for rows in (STEP_ROWS, 512))
    return Plan("row-invariant", verify, (*verify, *prompt))


def _verify_bucket(rows: int) -> Bucket:
    # A tile taller than the windows in it wastes its other rows; a lower one re-reads the keys more often.
    return Bucket(rows, rows, min(rows, 4 if rows <= 8 else 8))


def single_bucket_plan() -> Plan:
    """One bucket for everything, for a backend whose bits depend on the shape."""
    only = Bucket(SINGLE_ROWS, SINGLE_ROWS, 16)
    return Plan("single-bucket", (only,), (only,))
