"""`tfjax train target`: the command's edges."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tfjax.terminal import OK, CommandError, run_command
from tfjax.train.target_settings import NAME, Settings, parser, read_settings


def main(argv: Sequence[str] | None = None) -> int:
    """Trains one model and returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = parser().parse(words)
    return run_command(NAME, lambda: _train(read_settings(arguments), words))


def _train(settings: Settings, words: Sequence[str]) -> int:
    from tfjax.runtime import prepare_runtime

    if "jax" not in sys.modules:
        prepare_runtime()
    try:
        from tfjax.train.target_run import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("optax", "orbax"):
            raise
        raise CommandError(f"training needs {error.name}; install it with: pip install 'tfjax[train]'") from error
    try:
        print(run(settings, words))
    except (ValueError, FloatingPointError) as error:
        # Settings and corpus that do not go together say so themselves.
        raise CommandError(str(error)) from error
    return OK


if __name__ == "__main__":
    sys.exit(main())
