"""What a model family declares, so that the rest of the program need not know it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import jax.numpy as jnp
    from flax import nnx
    from numpy.typing import NDArray

    from tfjax.kernels.routes import Route


class Source(NamedTuple):
    """A tensor of the checkpoint (Hugging Face name) and the shape that the config demands.

    Attributes:
        note: where in the config the shape comes from, for the message about a tensor of another shape.
        laid: how its values lie in the parameter; as in the checkpoint where it is None.
    """

    name: str
    shape: tuple[int, ...]
    note: str = ""
    laid: Callable[[NDArray[Any]], NDArray[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Stacked[Config]:
    """The form of an architecture that device kernels take: the parameters of equal layers lie in one array each.

    Attributes:
        build: makes the module with placeholder parameters, for the operators of one route; raises Unsupported.
        sources, empty_cache: as a family's.
        tile_rows: rows that a block of its attention takes.
        unstacked: the family's own module with the same parameters. The stacks are freed one by one, so that no two
            copies of the model are in memory at once; what is in no stack is shared.
        takes_packed: its stacks may be packed (see kernels/packed.py).
    """

    build: Callable[[Config, jnp.dtype, Route], nnx.Module]
    sources: Callable[[Config], Mapping[str, tuple[Source, ...]]]
    empty_cache: Callable[[Config, int, int, int, jnp.dtype], Any]
    tile_rows: Callable[[Config], int]
    unstacked: Callable[[Any], nnx.Module]
    takes_packed: bool = False


@dataclass(frozen=True, slots=True)
class Family[Config]:
    """One architecture.

    Attributes:
        architecture: first of `architectures` in config.json.
        config_from_hf: reads config.json, strictly.
        build: makes the module with placeholder parameters of the given dtype.
        sources: parameter path -> checkpoint tensors laid end to end along the first axis.
        empty_cache: (config, pages, page_rows, lanes, dtype) -> zeroed state; page 0 and the last lane are scratch.
        cache_bytes_per_position: (config, dtype) -> bytes that grow with the context.
        cache_bytes_per_lane: (config, dtype) -> bytes that a lane takes whatever its context.
        stacked_module: module whose STACKED is the form for device kernels; None where some operator has none.
    """

    architecture: str
    config_from_hf: Callable[[Mapping[str, Any]], Config]
    build: Callable[[Config, jnp.dtype], nnx.Module]
    sources: Callable[[Config], Mapping[str, tuple[Source, ...]]]
    empty_cache: Callable[[Config, int, int, int, jnp.dtype], Any]
    cache_bytes_per_position: Callable[[Config, jnp.dtype], int]
    cache_bytes_per_lane: Callable[[Config, jnp.dtype], int]
    stacked_module: str | None = None

    @property
    def stacked(self) -> Stacked[Config] | None:
        """Imported on demand, as it imports this family's module."""
        if self.stacked_module is None:
            return None
        form: Stacked[Config] = importlib.import_module(self.stacked_module).STACKED
        return form
