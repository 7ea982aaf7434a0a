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
UNSEEN_OVERHEAD_MS = 8.0


@dataclass
class Crowd:
    """What the model thinks of streams that it has not seen yet: half the priors, half what it saw of the others."""

    seen: list[float] = field(default_factory=lambda: list(PRIORS))

    def chance(self, place: int) -> float:
        return 0.5 * PRIORS[place] + 0.5 * self.seen[place]

    def learn(self, hits: Sequence[bool]) -> None:
        for place, hit in enumerate(hits):
            self.seen[place] = max(0.05, 0.95 * self.seen[place] + 0.05 * hit)


@dataclass
class Guess:
    """What the model thinks of one stream. With a crowd it learns as one of it: much at first, little later."""

    crowd: Crowd | None = None
    chances: list[float] = field(default_factory=list)
    windows: list[int] = field(default_factory=lambda: [0] * len(PRIORS))
    waiting: list[float] | None = None
    aside: bool = False
    forced: int = 0
    rounds: int = 0
    drafted: int = 0

    def chain(self, most: int) -> list[float]:
        found, chance = [], 1.0
        for place in range(most):
            chance *= self.chances[place] if place < len(self.chances) else self.at_first(place)
            found.append(chance)
        return found

    def at_first(self, place: int) -> float:
        return self.crowd.chance(place) if self.crowd else PRIORS[place]

    def learn(self, drafted: int, landed: int, streams: int) -> None:
        if self.crowd and not drafted and not self.waiting and not self.aside and streams > 1:
            self.chances = [
                0.95 * chance + 0.05 * seen for chance, seen in zip(self.chances, self.crowd.seen, strict=False)
            ]
        self.rounds += 1
        self.drafted += drafted > 0
        hits = [place < landed for place in range(drafted)][: landed + 1]
        self.chances += [self.at_first(place) for place in range(len(self.chances), len(hits))]
        for place, hit in enumerate(hits):
            rate = max(0.05, 1 / (3 + self.windows[place])) if self.crowd else 0.15
            self.chances[place] = max(0.05, (1 - rate) * self.chances[place] + rate * hit)
            self.windows[place] += 1
        if self.crowd:
            self.crowd.learn(hits)


class Model:
    """Looks at every allocation there is, where the loop takes rows best first.

    Where holds have prices, the third round of so many streams, and each after it, is plain until one was.
    """

    def __init__(self, widths: dict[int, float], priced: bool) -> None:
        self.widths = widths
        self.priced = priced
        self.rounds: dict[int, int] = {}
        self.overheads_ms: dict[int, float] = {}

    def sees(self, streams: int, rows: int, asked: bool, round_ms: float) -> None:
        """A round of the loop ended; `asked` says that the drafter made drafts for it, used or not."""
        if rows == streams and asked:
            return
        self.rounds[streams] = self.rounds.get(streams, 0) + 1
        if rows == streams:
            beyond_ms = round_ms - self.forward_ms(rows)
            before_ms = self.overheads_ms.get(streams, beyond_ms)
            self.overheads_ms[streams] = 0.8 * before_ms + 0.2 * beyond_ms

    def overhead_ms(self, streams: int) -> float:
        seen = [(abs(count - streams), ms) for count, ms in self.overheads_ms.items()]
        return min(seen, key=lambda pair: pair[0])[1] if seen else UNSEEN_OVERHEAD_MS

    def goes_plain(self, streams: int) -> bool:
        return self.priced and streams not in self.overheads_ms and self.rounds.get(streams, 0) >= 2

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
            ms = self.overhead_ms(len(chains)) + self.forward_ms(rows) + (hold_ms if any(counts) else 0.0)
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
            if room[name] > 0 and not guess.forced and not guess.aside and not self.goes_plain(len(live))
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
        rows = fixed, min(fixed + depth + 1, max(self.widths))
        ms = [self.overhead_ms(len(live)) + self.forward_ms(count) for count in rows]
        return fixed + depth + 1 <= max(self.widths) and ms[1] + HOLD_MS < 1.25 * ms[0]

    def joint(self, live: dict[str, Guess], wanted: dict[str, list[float]]) -> dict[str, int]:
        if not wanted:
            return {}
        fixed = sum(1 + guess.forced for guess in live.values())
        already = [guess.waiting or [] for guess in live.values()]
        _, plain_tokens, plain_ms = self.best(already, fixed, HOLD_MS)
        chains = [wanted.get(name) or have for name, have in zip(live, already, strict=True)]
        counts, tokens, ms = self.best(chains, fixed, HOLD_MS)
        bare_ms = self.overhead_ms(len(live)) + self.forward_ms(fixed)
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
        if self.goes_plain(len(live)) and not any(guess.waiting for guess in live.values()):
            return dict.fromkeys(live, 0)
        chains = [[] if guess.forced else guess.waiting or [] for guess in live.values()]
        counts, _, _ = self.best(chains, sum(1 + guess.forced for guess in live.values()), 0.0)
        return dict(zip(live, counts, strict=True))
