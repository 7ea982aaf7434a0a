"""A module's parameters by their paths, put in one after another."""

from __future__ import annotations

from typing import Any

from flax import nnx


class ModuleState[Model: nnx.Module]:
    """The parameters that a module of shapes only (`nnx.eval_shape`) is to have.

    A path names attributes and places in lists: "layers.0.norm.weight".
    """

    def __init__(self, module: Model) -> None:
        self._module = module
        self._flat: dict[Any, Any] = dict(nnx.to_flat_state(nnx.state(module)))

    def __contains__(self, path: str) -> bool:
        return _key(path) in self._flat

    def shape(self, path: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._flat[_key(path)].get_value().shape
        return shape

    def put(self, path: str, value: Any) -> None:
        """Raises KeyError where the module has no such parameter."""
        key = _key(path)
        self._flat[key] = self._flat[key].replace(value)

    def share(self, other: nnx.Module) -> None:
        """Take whatever parameters another module has under the same paths."""
        self._flat |= {key: value for key, value in nnx.to_flat_state(nnx.state(other)) if key in self._flat}

    def filled(self) -> Model:
        """The module with its parameters."""
        nnx.update(self._module, nnx.from_flat_state(self._flat))
        return self._module


def _key(path: str) -> tuple[str | int, ...]:
    return tuple(int(part) if part.isdigit() else part for part in path.split("."))
