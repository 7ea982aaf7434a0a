"""Planted faults: a kernel's source with a few words changed, which a named gate has to find."""

from __future__ import annotations

import importlib
import inspect
import types
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Control:
    """One fault.

    Attributes:
        gate: which gate has to turn red.
        changes: pairs of text in the module and what stands there instead; each text occurs there.
    """

    name: str
    gate: str
    changes: tuple[tuple[str, str], ...]


def faulty(module: str, control: Control) -> types.ModuleType:
    """The module with the fault in it, beside the sound one.

    Raises:
        ValueError: where the text to change is gone, so that a control cannot rot unseen.
    """
    sound = importlib.import_module(module)
    source = inspect.getsource(sound)
    for old, new in control.changes:
        if old not in source:
            raise ValueError(f"control {control.name!r}: {module} has no {old!r}; change the control with the kernel")
        source = source.replace(old, new)
    changed = types.ModuleType(f"{module} with {control.name}")
    changed.__dict__.update(__file__=sound.__file__, __package__=sound.__package__)
    exec(compile(source, changed.__name__, "exec"), changed.__dict__)  # noqa: S102
    return changed
