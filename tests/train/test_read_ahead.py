"""Reading ahead: order, errors, and an end to the thread."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from tfjax.train.read_ahead import read_ahead


def test_values_come_in_order_and_end() -> None:
    with read_ahead(iter(range(100)), 3) as values:
        assert list(values) == list(range(100))


def test_what_the_source_raises_is_raised_after_what_it_yielded() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    with read_ahead(source(), 3) as values:
        assert next(values) == 1
        with pytest.raises(OSError, match="gone"):
            next(values)


def test_no_more_are_made_than_may_wait_and_leaving_ends_the_thread() -> None:
    made = []

    def source() -> Iterator[int]:
        for number in itertools.count():
            made.append(number)
            yield number

    with read_ahead(source(), 4) as values:
        assert next(values) == 0
    assert len(made) <= 7
    assert not any(thread.name.startswith("read-ahead") for thread in threading.enumerate())
