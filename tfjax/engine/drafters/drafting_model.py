"""A model that can draft for a target: its weights, and which of the target's tokens its head knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from tfjax.engine.weights import LoadedModel
from tfjax.models.dspark_config import DSparkConfig


@dataclass(frozen=True, slots=True)
class DraftingModel:
    """A drafter's weights on the device.

    Attributes:
        name: as /capabilities and /health show it.
        kind: `small` for one trained by tfjax, which reads the target's embedding; `dspark` for one that reads its
            layers and makes blocks; `model` for a whole model.
        ids: int32 [C], the target's token of each row of the head; further rows are padding.
        vocab: the target's.
        shared: parameters that belong to the target.
    """

    name: str
    kind: str
    loaded: LoadedModel
    ids: jax.Array
    vocab: int
    shared: Sequence[jax.Array] = ()

    @property
    def context(self) -> int:
        """Positions that it was trained for."""
        context: int = self.loaded.config.context
        return context

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers that it reads."""
        config = self.loaded.config
        return config.taps if isinstance(config, DSparkConfig) else ()

    @property
    def cache_bytes_per_position(self) -> int:
        return self.loaded.family.cache_bytes_per_position(self.loaded.config, self.loaded.dtype)

    @property
    def cache_bytes_per_lane(self) -> int:
        return self.loaded.family.cache_bytes_per_lane(self.loaded.config, self.loaded.dtype)

    @property
    def weight_bytes(self) -> int:
        """Bytes that it takes beside the target."""
        return self.loaded.weight_bytes - sum(array.nbytes for array in self.shared)

    def empty_cache(self, pages: int, lanes: int) -> Any:
        """A zeroed cache, page 0 and the last lane being scratch."""
        return self.loaded.empty_cache(pages, lanes)
