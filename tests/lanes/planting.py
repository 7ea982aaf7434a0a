"""Faults that are planted, and tests that have to notice them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.lanes import test_ahead, test_ahead_pays, test_aside_loop, test_asking, test_drafter_oracle, test_never_loses
from tests.stubs import BrokenContractError

Guard = Callable[[], Any]
Plant = Callable[[pytest.MonkeyPatch], None]


class Plants:
    """Faults, each with the test that must turn red."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Plant, Guard]] = []

    def caught_by(self, guard: Guard) -> Callable[[Plant], Plant]:
        def note(plant: Plant) -> Plant:
            self.pairs.append((plant, guard))
            return plant

        return note

    @property
    def names(self) -> list[str]:
        return [plant.__name__ for plant, _ in self.pairs]


def turns_red(plant: Plant, guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with nothing_remembered(), pytest.raises((AssertionError, BrokenContractError, pytest.fail.Exception)):
        guard()


@contextmanager
def nothing_remembered() -> Iterator[None]:
    """Simulated times are kept from one test to the next; those with a fault are no others' and none are theirs."""
    kept = (test_never_loses.decode_ms, test_ahead_pays.decode_ms)
    for times in kept:
        times.cache_clear()
    try:
        yield
    finally:
        for times in kept:
            times.cache_clear()


# What has to notice.


def replies() -> None:
    for kind in ("priced", "own depths"):
        test_drafter_oracle.test_company_that_comes_and_goes("mixed", kind)
        test_drafter_oracle.test_company_that_comes_and_goes("hostile", kind)
        test_drafter_oracle.test_forced_tokens_amid_drafts(kind, 5)
    test_drafter_oracle.test_the_last_places_of_target_and_drafter(2)


def rounds() -> None:
    for priced in (False, True):
        for limited in (False, True):
            for granted in (False, True):
                test_asking.test_eleven_rounds_of_a_mixed_company(priced, limited, granted, 1)


def text() -> None:
    for kind in ("priced", "own depths"):
        test_aside_loop.test_driven_aside_and_back(kind, 1)


def ahead() -> None:
    test_aside_loop.test_a_lone_stream_that_stands_aside_runs_ahead("priced")
    test_aside_loop.test_running_ahead_changes_no_round_of_it("priced")


def behind() -> None:
    test_ahead.test_thousands_of_tokens_behind_unread_rounds_are_the_serial_ones()
    test_ahead.test_pages_for_all_that_may_be_kept_are_there_before()


def gaps() -> None:
    test_aside_loop.test_unpredictable_text_stays_aside_with_probes_further_and_further_apart("priced")


def shortage() -> None:
    for pages in (14, 18):
        test_drafter_oracle.test_short_of_pages("priced", pages, 1)


GUARDS: tuple[Guard, ...] = (replies, rounds, text, ahead, behind, gaps, shortage)
