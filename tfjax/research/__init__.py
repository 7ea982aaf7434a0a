"""Experiments on models: measures computed from checkpoints, and `tfjax research`."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `tfjax research` and returns its exit code."""
    from tfjax.research.cli import main as run

    return run(argv)
