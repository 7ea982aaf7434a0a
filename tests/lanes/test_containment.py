from __future__ import annotations

import pytest

from tfjax.lanes.containment import Contained


def test_an_exception_is_logged_and_handed_on(caplog: pytest.LogCaptureFixture) -> None:
    handed: list[Exception] = []
    error = ValueError("inside")
    with Contained("the thing", handed.append):
        raise error
    assert handed == [error]
    assert "the thing failed" in caplog.text
    assert "inside" in caplog.text


def test_without_an_exception_nothing_happens() -> None:
    handed: list[Exception] = []
    with Contained("the thing", handed.append):
        pass
    assert handed == []


def test_an_interrupt_is_not_contained() -> None:
    with pytest.raises(KeyboardInterrupt), Contained("the thing"):
        raise KeyboardInterrupt
