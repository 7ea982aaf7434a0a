"""The default model, loaded once for all tests here."""

from __future__ import annotations

import pytest

from benchmarks.real_model import Opened, open_matrix


@pytest.fixture(scope="session")
def opened() -> Opened:
    return open_matrix()
