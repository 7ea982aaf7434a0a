from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from tests.kernels.draw_rows import (
    POSITIONS,
    ROWS,
    VOCAB,
    Row,
    draw_rows,
    drawn_by_rules,
    logprobs_reference,
    rules_of,
    tables,
    token_reference,
)
from tests.row_invariance import assert_row_invariant, bits, rows_of_normals
from tfjax.kernels.draw import NOT_FINITE, TOP_LOGPROBS, DrawRules, draw, draw_among
from tfjax.kernels.routes import Route

LANES = tables()
drawn_among = jax.jit(draw_among)
SOME_IDS = [np.arange(VOCAB), np.arange(0, VOCAB, 3), np.random.default_rng(2).permutation(VOCAB)[:40]]
LOGITS = rows_of_normals(0, 400, VOCAB) * np.float32(2)
KINDS = {
    "greedy": {},
    "warm": {"temperature": 0.8},
    "hot": {"temperature": 5.0},
    "nearly greedy": {"temperature": 1e-30},
    "top_k": {"temperature": 1.0, "top_k": 5},
    "top_p": {"temperature": 1.0, "top_p": 0.8},
    "min_p": {"temperature": 1.5, "min_p": 0.2},
    "all filters": {"temperature": 1.2, "top_k": 20, "top_p": 0.9, "min_p": 0.05},
    "filters of a greedy row": {"top_k": 1, "top_p": 0.1},
    "presence": {"presence": 1.5},
    "frequency": {"frequency": 0.7, "temperature": 0.5},
    "repetition": {"repetition": 1.3},
    "negative penalties": {"presence": -1.0, "frequency": -0.3},
    "weak repetition": {"repetition": 0.8},
    "biased": {"biased": True, "temperature": 1.0},
    "stops banned": {"stops_banned": True},
    "everything": {
        "temperature": 0.9, "top_k": 30, "top_p": 0.95, "min_p": 0.01, "presence": 0.5, "frequency": 0.2,
        "repetition": 1.1, "biased": True, "stops_banned": True, "logprobs": True,
    },
}  # fmt: skip


def rows_of_kind(**rules: Any) -> list[Row]:
    """Rows of several lanes and positions; the first positions are those of prompt and first reply tokens."""
    places = [
        (0, 1, 1),
        (1, 5, 5),
        (2, 6, 5),
        (0, 17, 5),
        (1, POSITIONS - 1, 20),
        (2, POSITIONS, 0),
        (0, 9, 9),
        (1, 30, 2),
    ]
    return [
        replace(Row(lane=lane, position=position, prompt_end=end, seed=7 + (lane << 33)), **rules)
        for lane, position, end in places
    ]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_equals_the_reference(kind: dict[str, Any]) -> None:
    rows = rows_of_kind(**kind)
    for start in range(0, 80, ROWS):
        logits = LOGITS[start : start + ROWS] - np.float32(start % (2 * ROWS))  # every other time all are negative
        wanted = [token_reference(row_logits, row, LANES) for row_logits, row in zip(logits, rows, strict=True)]
        assert draw_rows(logits, rows, LANES).token.tolist() == wanted


@pytest.mark.parametrize("ids", SOME_IDS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_draws_among_some_tokens(kind: dict[str, Any], ids: np.ndarray) -> None:
    """As if the others' logits were out of reach."""
    rows = rows_of_kind(**kind)
    lane = np.array([row.lane for row in rows], np.int32)
    for start in range(0, 24, ROWS):
        logits = np.full((ROWS, VOCAB), -1e4, np.float32)
        logits[:, ids] = LOGITS[start : start + ROWS, ids]
        wanted = [token_reference(row_logits, row, LANES) for row_logits, row in zip(logits, rows, strict=True)]
        drawn = drawn_among(logits[:, ids], ids.astype(np.int32), rules_of(rows), LANES, lane)
        assert np.asarray(drawn).tolist() == wanted


def test_among_some_tokens_too_numbers_that_are_not_finite_are_told() -> None:
    ids = np.arange(0, VOCAB, 2, dtype=np.int32)
    rows = rows_of_kind(temperature=1.0)
    logits = LOGITS[:ROWS, ids].copy()
    logits[3, 5] = np.nan
    drawn = np.asarray(drawn_among(logits, ids, rules_of(rows), LANES, np.zeros(ROWS, np.int32)))
    assert [token == NOT_FINITE for token in drawn] == [row == 3 for row in range(ROWS)]


def test_a_row_is_drawn_the_same_whatever_the_others_ask_for() -> None:
    """Steps that no row asks for are skipped; a row that does not need them must not notice."""
    kinds = [rows_of_kind(**kind)[3] for kind in KINDS.values()]
    logits = LOGITS[: len(kinds)]
    alone = [draw_rows(logits[i : i + 1], [row], LANES) for i, row in enumerate(kinds)]
    for start in range(len(kinds)):
        chosen = [(start + 3 * i) % len(kinds) for i in range(ROWS)]
        together = draw_rows(logits[chosen], [kinds[i] for i in chosen], LANES)
        for place, i in enumerate(chosen):
            assert together.token[place] == alone[i].token[0]
            if kinds[i].logprobs:
                for mixed, single in zip(together[1:], alone[i][1:], strict=True):
                    assert np.array_equal(bits(mixed[place]), bits(single[0]))


@pytest.mark.parametrize("asked", ["top_p", "presence", "biased", "stops banned", "everything"])
def test_a_row_that_asks_for_nothing_does_not_notice_who_does(asked: str) -> None:
    """The steps that it does without run or are skipped as a whole."""
    asking = rows_of_kind(**KINDS[asked])[0]
    for start in range(0, 80, ROWS - 1):
        logits = LOGITS[start : start + ROWS]
        rows = [Row(temperature=0.9 * (i % 3), seed=start + i, position=i + 1) for i in range(ROWS - 1)]
        skipped = draw_rows(logits[:-1], rows, LANES).token
        beside = draw_rows(logits, [*rows, asking], LANES).token
        assert beside[:-1].tolist() == skipped.tolist()


def test_a_penalty_that_overflows_is_no_fault_of_the_model() -> None:
    logits = LOGITS[:2].copy()
    logits[0, 0] = -3e38
    rows = [Row(repetition=1e30, temperature=t) for t in (0.0, 1.0)]
    lanes = LANES._replace(history=np.zeros_like(LANES.history))
    assert NOT_FINITE not in draw_rows(logits, rows, lanes).token.tolist()
    small = [Row(repetition=1e-39, temperature=t) for t in (0.0, 1.0)]
    assert draw_rows(np.abs(logits), small, lanes).token.tolist() == [0, 0]


def test_the_device_route_draws_in_two_starts_wherever_it_draws() -> None:
    """Once below the condition that skips all, once behind the steps that change logits; lowered once for both."""
    rows, vocab = 2, 256
    lanes = LANES._replace(bias=np.zeros((3, vocab), np.float32))
    logits, lane = np.zeros((rows, vocab), np.float32), np.zeros(rows, np.int32)
    traced = jax.jit(draw, static_argnames="route").trace(
        logits, rules_of([Row()] * rows), lanes, lane, route=Route.PALLAS_GPU
    )
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert (text.count("custom_call @mosaic_gpu"), text.count("call @keyed_draw(")) == (2, 2)
    among = jax.jit(draw_among, static_argnames="route").trace(
        logits, np.arange(vocab, dtype=np.int32), rules_of([Row()] * rows), lanes, lane, route=Route.PALLAS_GPU
    )
    text = among.lower(lowering_platforms=("cuda",)).as_text()
    assert (text.count("custom_call @mosaic_gpu"), text.count("call @keyed_draw(")) == (2, 2)


def test_rows_are_invariant() -> None:
    kinds = [row for kind in KINDS.values() for row in rows_of_kind(**kind)][:140]
    rules = rules_of([replace(row, logprobs=True) for row in kinds])
    lane = np.array([row.lane for row in kinds], np.int32)

    def operator(logits: Any, lane: Any, *fields: Any) -> Any:
        drawn = drawn_by_rules(logits, DrawRules(*fields), LANES, lane)
        return np.concatenate([np.asarray(x).reshape(len(logits), -1).view(np.int32) for x in drawn], 1)

    plain = [np.asarray(field) for field in rules]
    lows = LOGITS[: len(kinds)]

    def keep_rules(logits: Any, lane: Any, place: Any) -> Any:
        return operator(logits, lane, *(field[place] for field in plain))

    assert_row_invariant(keep_rules, lows, lane, np.arange(len(kinds)), counts=(1, 2, 9))


def test_greedy_ties_go_to_the_lower_id() -> None:
    logits = np.zeros((2, VOCAB), np.float32)
    logits[0, [9, 30, 55]] = 4
    logits[1, ::2] = -0.0
    assert draw_rows(logits, [Row(), Row()], LANES).token.tolist() == [9, 0]


def test_the_smallest_temperature_draws_the_largest_logit() -> None:
    logits = LOGITS[:3] * np.float32(50)
    rows = [Row(temperature=t, seed=3) for t in (1e-37, 1e-10, 1e-4)]
    assert draw_rows(logits, rows, LANES).token.tolist() == logits.argmax(-1).tolist()


def test_seed_and_position_choose_the_draw() -> None:
    logits = np.zeros((ROWS, VOCAB), np.float32)
    base = Row(temperature=1.0, seed=11)
    rows = [base, base, replace(base, seed=12), replace(base, position=11), replace(base, seed=11 + (1 << 40))]
    drawn = draw_rows(logits[: len(rows)], rows, LANES).token.tolist()
    assert drawn[0] == drawn[1]
    assert len({drawn[0], *drawn[2:]}) == 4


def test_the_lane_itself_does_not_choose_the_draw() -> None:
    logits = np.repeat(LOGITS[:1], 3, 0)
    rows = [Row(temperature=1.0, seed=5, lane=lane) for lane in range(3)]
    assert len(set(draw_rows(logits, rows, LANES).token.tolist())) == 1


def test_penalties_see_the_drafts_before_a_row_and_no_others() -> None:
    """Rows of one window: each one's history is what stands before it, though later drafts are written already."""
    history = LANES.history.copy()
    history[0, 5:9] = [40, 41, 42, 43]
    lanes = LANES._replace(history=history)
    logits = np.zeros((5, VOCAB), np.float32)
    logits[:, 40:44] = 10
    rows = [Row(position=5 + i, prompt_end=5, presence=20.0) for i in range(5)]
    assert draw_rows(logits, rows, lanes).token.tolist() == [40, 41, 42, 43, 0]


def test_presence_and_frequency_leave_the_prompt_alone() -> None:
    history = np.zeros_like(LANES.history)
    lanes = LANES._replace(history=history)
    logits = np.zeros((3, VOCAB), np.float32)
    logits[:, 0] = 1
    rows = [Row(prompt_end=10, presence=5.0), Row(prompt_end=9, presence=5.0), Row(prompt_end=10, repetition=1e9)]
    assert draw_rows(logits, rows, lanes).token.tolist()[:2] == [0, 1]
    assert draw_rows(np.where(logits == 0, 1e-3, logits).astype(np.float32), rows, lanes).token.tolist()[2] == 1


def test_stop_tokens_are_drawn_once_they_are_allowed() -> None:
    logits = np.zeros((2, VOCAB), np.float32)
    stop = int(LANES.stops[1, 0])
    logits[:, stop] = 9
    rows = [Row(lane=1, stops_banned=True), Row(lane=1)]
    drawn = draw_rows(logits, rows, LANES).token.tolist()
    assert drawn[0] != stop
    assert drawn[1] == stop


def test_a_stale_table_is_not_looked_at() -> None:
    bad = LANES._replace(bias=np.full_like(LANES.bias, np.nan), stops=np.zeros_like(LANES.stops))
    assert draw_rows(LOGITS[:2], [Row(), Row()], bad).token.tolist() == LOGITS[:2].argmax(-1).tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_reported(value: float) -> None:
    logits = LOGITS[:3].copy()
    logits[1, 17] = value
    rows = [Row(temperature=1.0), Row(temperature=1.0), Row(temperature=1.0)]
    drawn = draw_rows(logits, rows, LANES).token.tolist()
    assert drawn[1] == NOT_FINITE
    clean = draw_rows(LOGITS[:3], rows, LANES).token.tolist()
    assert [drawn[0], drawn[2]] == [clean[0], clean[2]]


@pytest.mark.parametrize("kind", ["greedy", "warm", "everything"])
def test_logprobs_are_those_of_the_raw_distribution(kind: str) -> None:
    rows = [replace(row, logprobs=True) for row in rows_of_kind(**KINDS[kind])]
    logits = LOGITS[:ROWS] * np.float32(3)
    drawn = draw_rows(logits, rows, LANES)
    for place in range(ROWS):
        wanted = logprobs_reference(logits[place])
        order = np.argsort(-wanted, kind="stable")[:TOP_LOGPROBS]
        assert drawn.logprob[place] == pytest.approx(wanted[drawn.token[place]], abs=2e-5)
        assert drawn.top_token[place].tolist() == order.tolist()
        np.testing.assert_allclose(drawn.top_logprob[place], wanted[order], atol=2e-5)
        assert np.exp(drawn.top_logprob[place].astype(np.float64)).sum() <= 1 + 1e-5


def test_tied_alternatives_come_by_lower_id() -> None:
    drawn = draw_rows(np.zeros((1, VOCAB), np.float32), [Row(logprobs=True)], LANES)
    assert drawn.top_token[0].tolist() == list(range(TOP_LOGPROBS))


@pytest.mark.parametrize(
    "rules", [{}, {"top_k": 6}, {"top_p": 0.7}, {"min_p": 0.15}], ids=["plain", "top_k", "top_p", "min_p"]
)
def test_draws_follow_the_distribution(rules: dict[str, Any]) -> None:
    """Chi-square of 8,000 draws over positions and seeds against the filtered softmax; the seeds are fixed."""
    temperature, count = 0.9, 8000
    logits = LOGITS[0] * np.float32(0.8)
    random = np.random.default_rng(9)
    rows = [
        Row(temperature=temperature, position=int(position), seed=int(seed), **rules)
        for position, seed in zip(random.integers(1, POSITIONS, count), random.integers(0, 2**63, count), strict=True)
    ]
    drawn = drawn_by_rules(np.repeat(logits[None], count, 0), rules_of(rows), LANES, np.zeros(count, np.int32))
    scaled = (logits - logits.max()) / np.float32(temperature)
    kept = np.asarray(_kept(scaled, rules))
    chance = np.where(kept, np.exp(scaled.astype(np.float64)), 0)
    expected = count * chance / chance.sum()
    seen = np.bincount(np.asarray(drawn.token), minlength=VOCAB)
    assert seen[~kept].sum() == 0
    common = expected >= 5
    statistic = ((seen - expected)[common] ** 2 / expected[common]).sum()
    freedom = common.sum() - 1
    # The 99.9 % point of chi-square by Wilson and Hilferty.
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * np.sqrt(2 / (9 * freedom))) ** 3


def _kept(scaled: Any, rules: dict[str, Any]) -> Any:
    from tests.kernels.test_filters import reference

    return reference(scaled, rules.get("top_k", 0), rules.get("top_p", 1.0), rules.get("min_p", 0.0))
