"""Checkpoints of a training run: the last two, taken up again only by a run with the same settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from tfjax.checkpoints.cache import write_atomically

KEPT = 2
SETTINGS = "settings.json"


class OtherRun(ValueError):
    """The directory holds a run with other settings."""


class Checkpoints:
    """A directory of checkpoints, each a state and the loss curve up to it."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        """Open or make the directory.

        Args:
            settings: all that decides the run's numbers, as JSON values.

        Raises:
            OtherRun: what lies there was written under other settings; the message names the first that differs.
        """
        _check_settings(directory / SETTINGS, settings)
        options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(directory.absolute(), options=options)

    def restore(self, like: Any) -> tuple[int, Any, list[dict[str, float]]] | None:
        """The last step that was saved, its state and curve; None where nothing was saved.

        Args:
            like: a state with the shapes and dtypes that are wanted.
        """
        step = self._manager.latest_step()
        if step is None:
            return None
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        found = self._manager.restore(
            step, args=ocp.args.Composite(state=ocp.args.StandardRestore(shapes), curve=ocp.args.JsonRestore())
        )
        return step, found.state, found.curve["points"]

    def save(self, step: int, state: Any, curve: list[dict[str, float]]) -> None:
        """Keep the state after `step` steps; it is on disk when this returns. A step that is kept already stays."""
        self._manager.save(
            step,
            args=ocp.args.Composite(state=ocp.args.StandardSave(state), curve=ocp.args.JsonSave({"points": curve})),
        )

    def close(self) -> None:
        self._manager.close()


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    wanted = json.loads(json.dumps(settings))
    if not path.exists():
        write_atomically(path, (json.dumps(wanted, indent=2) + "\n").encode())
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OtherRun(f"{path} is damaged; remove {path.parent} to begin anew")
    for name in {**wanted, **found}:
        if found.get(name) != wanted.get(name):
            raise OtherRun(
                f"{path.parent} holds a run with {name} {found.get(name)!r}, and this one has {wanted.get(name)!r}; "
                "repeat its flags to go on with it, give another --output, or remove it to begin anew"
            )
