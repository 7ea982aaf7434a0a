"""What the commands that train have in common: the device made ready, missing packages named, failures in words."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from tfjax.terminal import OK, CommandError


def train(module: str, settings: Any, words: Sequence[str]) -> int:
    """Call `run(settings, words)` of a module of this package, imported only now, and print what it says.

    Raises:
        CommandError: a package for training is not installed; or settings, material and target do not go together.
    """
    from tfjax.runtime import prepare_runtime

    if "jax" not in sys.modules:
        prepare_runtime()
    try:
        run = importlib.import_module(f"tfjax.train.{module}").run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("optax", "orbax"):
            raise
        raise CommandError(f"training needs {error.name}; install it with: pip install 'tfjax[train]'") from error
    try:
        print(run(settings, words))
    except (ValueError, FloatingPointError) as error:
        raise CommandError(str(error)) from error
    return OK
