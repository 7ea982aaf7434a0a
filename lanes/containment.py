"""Keeps a failure where it happened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import TracebackType

log = logging.getLogger(__name__)


class Contained:
    """`with Contained(what, then):` logs an exception of the block as a failure of `what` and calls `then(error)`."""

    __slots__ = ("_then", "_what")

    def __init__(self, what: str, then: Callable[[Exception], None] | None = None) -> None:
        self._what = what
        self._then = then

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        log.error("%s failed", self._what, exc_info=error)
        if self._then is not None:
            self._then(error)
        return True


def for_each[Item](
    items: Iterable[Item], act: Callable[[Item], None], what: str, failed: Callable[[Item, Exception], None]
) -> None:
    """Act on every item. What that raises is a failure of `what`, and of this one item: the others have their turn."""
    rest, ended = iter(items), False
    turn: list[Item] = []

    def fail(error: Exception) -> None:
        failed(turn[0], error)

    while not ended:
        with Contained(what, fail):
            for item in rest:
                turn[:] = [item]
                act(item)
            ended = True
