from __future__ import annotations

from dataclasses import fields
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.engine.api import Sampling
from tfjax.engine.lane_sampling import LaneSampling, fill_each
from tfjax.engine.rows_buffer import FIELDS, RowsBuffer, unpack
from tfjax.engine.step import rules_of

PROMPT = 12
FILLED: dict[str, tuple[Any, dict[str, Any]]] = {
    "temperature": (0.7, {"temperature": np.float32(0.7)}),
    "top_k": (40, {"top_k": 40}),
    "top_p": (0.9, {"top_p": np.float32(0.9)}),
    "min_p": (0.05, {"min_p": np.float32(0.05)}),
    "seed": (2**64 - 2, {"seed_low": 2**32 - 2, "seed_high": 2**32 - 1}),
    "presence_penalty": (0.5, {"presence": 0.5}),
    "frequency_penalty": (-0.5, {"frequency": -0.5}),
    "repetition_penalty": (1.25, {"repetition": 1.25}),
    "logit_bias": (((3, 1.0),), {"biased": 1}),
    "min_tokens": (2, {"banned_until": PROMPT + 2}),
    "logprobs": (0, {"logprobs": 1}),
}


def filled(sampling: Sampling) -> RowsBuffer:
    """A buffer of eight draws, three of them filled from place 2 on."""
    buffer = RowsBuffer(8)
    LaneSampling.of(sampling, PROMPT).fill(buffer, 2, 3)
    return buffer


def test_every_rule_is_listed() -> None:
    assert FILLED.keys() == {field.name for field in fields(Sampling)}


@pytest.mark.parametrize("name", FILLED)
def test_every_rule_reaches_its_draws_and_no_others(name: str) -> None:
    value, wanted = FILLED[name]
    base = Sampling(temperature=0.0)
    plain = filled(base)
    changed = filled(Sampling(**({"temperature": 0.0} | {name: value})))
    for field in FIELDS:
        if field in wanted:
            assert changed[field][2:5].tolist() == np.broadcast_to(wanted[field], 3).tolist()
        else:
            assert np.array_equal(changed[field], plain[field]), field
        assert np.array_equal(changed[field][[0, 1, 5, 6, 7]], RowsBuffer(5)[field]), field


def test_one_draw_of_each_lane() -> None:
    lanes = [LaneSampling.of(Sampling(seed=seed, min_tokens=3), PROMPT + seed) for seed in range(3)]
    buffer, alone = RowsBuffer(4), RowsBuffer(4)
    fill_each(buffer, lanes)
    for place, lane in enumerate(lanes):
        lane.fill(alone, place, 1)
    assert np.array_equal(buffer.matrix, alone.matrix)


def test_the_prompts_end_is_where_the_reply_starts() -> None:
    assert filled(Sampling())["prompt_end"][2] == PROMPT


@pytest.mark.parametrize("min_tokens", [0, 1, 2, 10])
def test_stops_are_banned_for_exactly_min_tokens(min_tokens: int) -> None:
    """The draw after input position p is the reply's token number p + 2 - prompt, counted from 1."""
    buffer = RowsBuffer(16)
    LaneSampling.of(Sampling(min_tokens=min_tokens), PROMPT).fill(buffer, 0, 16)
    rules = rules_of(unpack(jnp.asarray(buffer.matrix)), jnp.arange(PROMPT - 1, PROMPT + 15), 16)
    assert rules.stops_banned.tolist() == [True] * min_tokens + [False] * (16 - min_tokens)


@pytest.mark.parametrize(("logprobs", "wanted"), [(None, 0), (0, 1), (20, 1)])
def test_logprobs_are_wanted_also_without_alternatives(logprobs: int | None, wanted: int) -> None:
    sampling = LaneSampling.of(Sampling(logprobs=logprobs), PROMPT)
    assert sampling.logprobs == logprobs
    assert filled(Sampling(logprobs=logprobs))["logprobs"][2] == wanted


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_is_an_unsigned_64_bit_number(seed: int) -> None:
    with pytest.raises(OverflowError):
        LaneSampling.of(Sampling(seed=seed), PROMPT)
