"""Every test of this folder has a cache directory of its own, except where the default model is read."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache_directory(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache; tests on the default model share the clone's, which saves them the reading."""
    if request.node.get_closest_marker("weights") is None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
