"""Training: replies of a model to learn from, and the drafters that learn from them."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `tfjax train` and returns its exit code."""
    from tfjax.train.cli import main as run

    return run(argv)
