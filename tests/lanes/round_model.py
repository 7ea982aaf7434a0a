"""A second model of whole rounds with a drafter: it looks at every allocation there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

PRIORS = (0.85, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50)
DEPTH = 5
STEP_MS = 1.5
HOLD_MS = 2.0
OVERHEAD_MS = 8.0


@dataclass
class Guess:
    """What the model thinks of one stream."""

    chances: list[float] = field(default_factory=lambda: list(PRIORS))
    waiting: list[float] | None = None
    aside: bool = False
    forced: int = 0
    rounds: int = 0
    drafted: int = 0

    def chain(self, most: int) -> list[float]:
        found, chance = [], 1.0
        for place in range(most):
            chance *= self.chances[place]
            found.append(chance)
        return found

    def learn(self, drafted: int, landed: int) -> None:
        self.rounds += 1
        self.drafted += drafted > 0
        for place in range(min(drafted, landed + 1)):
            self.chances[place] = max(0.05, self.chances[place] + 0.15 * ((place < landed) - self.chances[place]))


class Model:
    """Looks at every allocation there is, where the loop takes rows best first."""

    def __init__(self, widths: dict[int, float], priced: bool) -> None:
        self.widths = widths
        self.priced = priced

    def forward_ms(self, rows: int) -> float:
        return self.widths[min(width for width in self.widths if width >= rows)]

    def best(self, chains: Sequence[Sequence[float]], fixed: int, hold_ms: float) -> tuple[list[int], float, float]:
        """Drafts by stream, expected tokens and milliseconds of the best allocation.

        Of equals it is the narrowest; of those, the one whose drafts come first by their place, then by stream.
        """
        found: tuple[Any, list[int], float, float] | None = None
        for counts in product(*[range(len(chain) + 1) for chain in chains]):
            if (rows := fixed + sum(counts)) > max(self.widths):
                continue
            tokens = len(chains) + sum(sum(chain[:count]) for chain, count in zip(chains, counts, strict=True))
            ms = OVERHEAD_MS + self.forward_ms(rows) + (hold_ms if any(counts) else 0.0)
            order = sorted((place, stream) for stream, count in enumerate(counts) for place in range(count))
            key = -round(tokens / ms, 12), rows, order
            if found is None or key < found[0]:
                found = key, list(counts), tokens, ms
        assert found is not None
        return found[1:]

    def ask(self, live: dict[str, Guess], room: dict[str, int]) -> list[tuple[str, int]]:
        fresh = {name: guess for name, guess in live.items() if guess.waiting is None}
        wanted = {
            name: guess.chain(room[name])
            for name, guess in fresh.items()
            if room[name] > 0 and not guess.forced and not guess.aside
        }
        depths = self.joint(live, wanted) if self.priced else {name: self.own(wanted[name]) for name in wanted}
        for name, guess in fresh.items():
            guess.waiting = guess.chain(depths.get(name, 0))
            if depths.get(name) and self.goes_deeper(guess, depths[name], room[name], live):
                depths[name] += 1
                guess.waiting = [*guess.waiting, guess.waiting[-1] if self.priced else guess.chain(depths[name])[-1]]
        return [(name, depth) for name, depth in depths.items() if depth]

    def goes_deeper(self, guess: Guess, depth: int, room: int, live: dict[str, Guess]) -> bool:
        """Every eighth time one draft more, to learn how it lands; where holds have prices, only if it is cheap."""
        if depth >= room or (guess.drafted if self.priced else guess.rounds) % 8 != 7:
            return False
        fixed = sum(1 + guess.forced for guess in live.values())
        if not self.priced:
            return True
        ms = [OVERHEAD_MS + self.forward_ms(min(rows, max(self.widths))) for rows in (fixed, fixed + depth + 1)]
        return fixed + depth + 1 <= max(self.widths) and ms[1] + HOLD_MS < 1.25 * ms[0]

    def joint(self, live: dict[str, Guess], wanted: dict[str, list[float]]) -> dict[str, int]:
        if not wanted:
            return {}
        fixed = sum(1 + guess.forced for guess in live.values())
        already = [guess.waiting or [] for guess in live.values()]
        _, plain_tokens, plain_ms = self.best(already, fixed, HOLD_MS)
        chains = [wanted.get(name) or have for name, have in zip(live, already, strict=True)]
        counts, tokens, ms = self.best(chains, fixed, HOLD_MS)
        bare_ms = OVERHEAD_MS + self.forward_ms(fixed)
        for name in wanted:
            live[name].aside = tokens / ms < 1.05 * len(live) / bare_ms
        if tokens / ms < 1.05 * plain_tokens / plain_ms:
            return {}
        return {name: count for name, count in zip(live, counts, strict=True) if name in wanted}

    def own(self, chain: list[float]) -> int:
        rates = [
            (1 + sum(chain[:depth])) / (self.forward_ms(1 + depth) + STEP_MS * depth) for depth in range(len(chain) + 1)
        ]
        best = max(range(1, len(rates)), key=rates.__getitem__)
        return best if rates[best] >= 1.05 * rates[0] else 0

    def plan(self, live: dict[str, Guess]) -> dict[str, int]:
        chains = [[] if guess.forced else guess.waiting or [] for guess in live.values()]
        counts, _, _ = self.best(chains, sum(1 + guess.forced for guess in live.values()), 0.0)
        return dict(zip(live, counts, strict=True))
