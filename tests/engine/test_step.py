from __future__ import annotations

import jax.numpy as jnp

from tfjax.engine.rows_buffer import RowsBuffer, unpack
from tfjax.engine.step import rules_of
from tfjax.kernels.draw import DrawRules

COPIED = ("temperature", "top_k", "top_p", "min_p", "presence", "frequency", "repetition", "prompt_end")
FLAGS = ("biased", "stops_banned", "logprobs")


def test_rules_are_those_of_the_draws() -> None:
    """Every field has its own values; a draw belongs one position behind its row."""
    buffer = RowsBuffer(3)
    for number, name in enumerate(COPIED, start=1):
        buffer[name][:] = [number, number + 20, 99]
    for name in FLAGS:
        buffer[name][:] = [0, 1, 1]
    buffer["seed_low"][:], buffer["seed_high"][:] = [7, 8, 9], [2**32 - 1, 0, 1]
    rules = rules_of(unpack(jnp.asarray(buffer.matrix)), jnp.array([10, 40]), 2)
    assert rules.position.tolist() == [11, 41]
    for number, name in enumerate(COPIED, start=1):
        assert getattr(rules, name).tolist() == [number, number + 20]
    for name in FLAGS:
        assert getattr(rules, name).tolist() == [False, True]
    assert rules.seed.tolist() == [[7, 2**32 - 1], [8, 0]]
    assert set(DrawRules._fields) == {"position", "seed", *COPIED, *FLAGS}
