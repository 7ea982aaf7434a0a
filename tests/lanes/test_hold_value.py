from __future__ import annotations

from itertools import product
from random import Random

import pytest

from tfjax.lanes.hold_value import certain, unweighed, weighed

STEPS_MS = {2: 20.0, 4: 22.0, 8: 25.0, 16: 35.0, 32: 60.0}


def price_ms(rows: int, drafting: int, deepest: int) -> float:
    hold_ms = 0.5 * drafting + 1.5 * deepest if drafting else 0.0
    return STEPS_MS[min(width for width in STEPS_MS if width >= rows)] + hold_ms


def test_drafts_that_are_sure_to_be_verified_are_worth_the_same_both_ways() -> None:
    random = Random(4)
    for _ in range(200):
        chains = []
        for _ in range(random.randint(1, 5)):
            chance, chain = 1.0, []
            for _ in range(random.randint(0, 4)):
                chance *= random.random()
                chain.append(chance)
            chains.append(chain)
        chains = [[chance for chance in chain if chance > 0.02] for chain in chains]
        held, streams = [random.random() < 0.7 for _ in chains], len(chains)
        steps = random.choice([frozenset(STEPS_MS), None])
        blind = unweighed(chains, held, streams, 32, price_ms, steps)
        sure = weighed([certain(chain) for chain in chains], held, streams, 32, price_ms, steps)
        assert list(sure.granted) == list(blind.granted)
        assert (sure.tokens, sure.ms) == pytest.approx((blind.tokens, blind.ms))


def test_rows_that_unlikely_drafts_would_cost_are_saved() -> None:
    """Eight streams, of whose drafts half land: eight rows more, but only four where one knows which."""
    chains = [[0.5]] * 8
    blind = unweighed(chains, [True] * 8, 8, 32, lambda rows, drafting, deepest: 20.0 + rows, None)
    sure = weighed([[(0.5, 0.5)]] * 8, [True] * 8, 8, 32, lambda rows, drafting, deepest: 20.0 + rows, None)
    assert (blind.tokens, blind.ms) == (12.0, 36.0)
    assert (sure.tokens, sure.ms) == (12.0, 32.0)


def test_it_finds_what_trying_all_depths_finds() -> None:
    """Nearly: it takes the likeliest first, though a hold for fewer streams may be so cheap that they go first."""
    random = Random(7)
    for _ in range(60):
        streams = random.randint(1, 4)
        often = sorted((random.random() for _ in range(3)), reverse=True)
        sure = random.uniform(0.4, 1.0)
        nodes = [(share, share * sure ** (place + 1)) for place, share in enumerate(often)]
        found = weighed([nodes] * streams, [True] * streams, streams, 32, price_ms, None)
        rates = []
        for depths in product(range(4), repeat=streams):
            rows = streams + sum(nodes[place][0] for depth in depths for place in range(depth))
            tokens = streams + sum(nodes[place][1] for depth in depths for place in range(depth))
            drafting = sum(depth > 0 for depth in depths)
            rates.append(tokens / price_ms(int(rows - 1e-6) + 1, drafting, max(depths)))
        assert found.tokens / found.ms >= 0.95 * max(rates)
        assert found.tokens / found.ms <= max(rates) * (1 + 1e-9)


def test_it_takes_no_more_rows_than_there_are() -> None:
    share = weighed([[(0.6, 0.6)] * 4], [True], 1, 3, lambda rows, drafting, deepest: 30.0, None)
    assert share.granted == [3]
    assert share.tokens == pytest.approx(1 + 3 * 0.6)


def test_drafts_of_the_host_cost_no_hold() -> None:
    nodes = [certain([0.9, 0.8])]
    assert weighed(nodes, [False], 1, 32, price_ms, None).ms == 22.0
    assert weighed(nodes, [True], 1, 32, price_ms, None).ms == 22.0 + 0.5 + 3.0


def test_drafts_that_hardly_ever_turn_out_likely_are_left_out() -> None:
    share = weighed([[(0.5, 0.5), (0.019, 0.019), (0.01, 0.01)]], [True], 1, 32, lambda *_: 30.0, None)
    assert share.granted == [1]


def test_no_drafts_at_all() -> None:
    assert unweighed([[], []], [True, True], 2, 32, price_ms, None).granted == [0, 0]
    empty = weighed([[], []], [True, True], 2, 32, price_ms, None)
    assert (list(empty.granted), empty.tokens, empty.ms) == ([0, 0], 2.0, 20.0)
