from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfjax.kernels.routes import Route, chosen


def device(platform: str, capability: str | None = None) -> Any:
    return SimpleNamespace(platform=platform, compute_capability=capability)


@pytest.mark.parametrize(
    ("wanted", "on", "route", "why"),
    [
        ("auto", device("gpu", "9.0"), Route.PALLAS_GPU, "9.0"),
        ("auto", device("gpu", "8.9"), Route.REFERENCE, "8.9"),
        ("auto", device("gpu", "10.0"), Route.REFERENCE, "10.0"),
        ("auto", device("gpu", "gfx942"), Route.REFERENCE, "gfx942"),
        ("auto", device("cpu"), Route.REFERENCE, "cpu"),
        ("reference", device("gpu", "9.0"), Route.REFERENCE, "--kernels reference"),
    ],
)
def test_the_choice_and_its_reason(wanted: str, on: Any, route: Route, why: str) -> None:
    found, reason = chosen(wanted, on)
    assert found is route
    assert why in reason


def test_an_unknown_wish_is_refused() -> None:
    with pytest.raises(ValueError, match="use auto or reference"):
        chosen("fast", device("gpu", "9.0"))
