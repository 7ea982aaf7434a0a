"""`tfjax train small`: the command's edges."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tfjax.terminal import run_command
from tfjax.train.command import train
from tfjax.train.small_settings import NAME, parser, read_settings


def main(argv: Sequence[str] | None = None) -> int:
    """Trains one drafter and returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = parser().parse(words)
    return run_command(NAME, lambda: train("small_run", read_settings(arguments), words))


if __name__ == "__main__":
    sys.exit(main())
