"""A stream's sampling rules in the form in which they stand in a forward's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfjax.engine.api import Sampling
from tfjax.engine.rows_buffer import FIELDS, PLACE, RowsBuffer

LONGEST_STOPS = 96
"""Stop tokens of one lane that min_tokens can ban: 64 of a request, and the model's EOS ids."""

_RULES = slice(PLACE["temperature"], len(FIELDS))
"""Matrix rows that are the same for all of a stream's draws."""


@dataclass(frozen=True, slots=True)
class LaneSampling:
    """What the backend keeps per lane.

    Attributes:
        rules: int32 [fields, 1].
        logprobs: alternatives wanted, None for no logprobs.
    """

    rules: NDArray[np.int32]
    logprobs: int | None

    @classmethod
    def of(cls, sampling: Sampling, prompt_rows: int) -> LaneSampling:
        buffer = RowsBuffer(1)
        buffer["temperature"][:] = sampling.temperature
        buffer["top_k"][:] = sampling.top_k
        buffer["top_p"][:] = sampling.top_p
        buffer["min_p"][:] = sampling.min_p
        buffer["seed_low"][:] = sampling.seed & 0xFFFFFFFF
        buffer["seed_high"][:] = sampling.seed >> 32
        buffer["presence"][:] = sampling.presence_penalty
        buffer["frequency"][:] = sampling.frequency_penalty
        buffer["repetition"][:] = sampling.repetition_penalty
        buffer["prompt_end"][:] = prompt_rows
        buffer["biased"][:] = bool(sampling.logit_bias)
        buffer["banned_until"][:] = prompt_rows + sampling.min_tokens if sampling.min_tokens else 0
        buffer["logprobs"][:] = sampling.logprobs is not None
        return cls(buffer.matrix[_RULES], sampling.logprobs)

    def fill(self, buffer: RowsBuffer, first: int, draws: int) -> None:
        """Set the rules of some draws of a forward, from `first` on."""
        buffer.matrix[_RULES, first : first + draws] = self.rules


def fill_each(buffer: RowsBuffer, lanes: Sequence[LaneSampling]) -> None:
    """Set the rules of one draw of each lane, from the first draw on."""
    buffer.matrix[_RULES, : len(lanes)] = np.concatenate([lane.rules for lane in lanes], axis=1)
