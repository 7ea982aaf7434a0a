"""Which starts a proof of equal tokens makes, and what it does on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.exact_report import Arm

START_S = 12.0
"""What a start is expected to take, until one was timed."""
STATE_S = 8.0
REPEATED = 64
LEAST_TOKENS, MOST_TOKENS = 24, 384
"""Of one reply."""

ALL_16 = Arm("16 streams", 16, 4)
AGAIN = Arm("16 streams, unpriced", 16, 10, copies=REPEATED, priced=False)
TURNS = Arm("second turns, 4 streams", 4, 5, jobs=8, turns=2)
CANCELS = Arm("12 streams, others cancelled", 12, 6, cancels=True)
FORCED = Arm("4 streams, unpriced", 4, 7, priced=False)
MIXED = Arm("16 streams, every 3rd plain", 16, 6, copies=2, plain_every=3)

REFERENCE = {"stored": Arm("plain, alone", 1, 40), "4 bits": Arm("plain, alone", 1, 12, jobs=9)}
"""By target: what all other arms are compared with."""
TURN_REFERENCE = {"stored": Arm("second turns, plain, alone", 1, 12), "4 bits": Arm("second turns, plain, alone", 1, 6)}


@dataclass(frozen=True, slots=True)
class Variant:
    """One start: weights and flags, and the arms that are run on it.

    Attributes:
        share: of the tokens wanted; an arm that is repeated is so until so many counted.
        target: `stored` or `4 bits`.
        drafter: `stored`, `bfloat16` or `misled`.
        state: whether the cache is compared after every round too.
    """

    name: str
    arms: tuple[Arm, ...]
    share: float
    target: str = "stored"
    drafter: str = "stored"
    bits: int = 16
    held: str = "on"
    state: bool = False


VARIANTS = (
    Variant(
        "as stored, held drafts",
        (
            Arm("alone", 1, 8, jobs=8),
            Arm("4 streams", 4, 7),
            Arm("8 streams, every 3rd plain", 8, 5, plain_every=3),
            MIXED,
            TURNS,
            replace(CANCELS, copies=2),
            AGAIN,
        ),
        0.55,
    ),
    Variant(
        "as stored, host reads drafts", (Arm("4 streams", 4, 5, jobs=12), CANCELS, ALL_16, AGAIN), 0.65, held="off"
    ),
    Variant("bfloat16 drafter", (Arm("4 streams", 4, 3, jobs=6), ALL_16, AGAIN), 0.75, drafter="bfloat16"),
    Variant("8-bit drafter", (Arm("8 streams", 8, 3, jobs=12), ALL_16, AGAIN), 0.84, drafter="bfloat16", bits=8),
    Variant("misled drafter", (FORCED, MIXED, AGAIN), 0.92, drafter="misled", state=True),
    Variant("4-bit target", (Arm("4 streams", 4, 4), TURNS, CANCELS, MIXED, AGAIN), 1.0, target="4 bits"),
)


def reply_tokens(goal: int) -> int:
    """Of each reply, by the tokens wanted in all."""
    return max(LEAST_TOKENS, min(MOST_TOKENS, goal // 260))


def expected_steps(variant: Variant, variants: Sequence[Variant] = VARIANTS) -> list[float]:
    """Seconds that a variant's steps are expected to take on a large GPU: its start, references, arms and states."""
    first = next(one for one in variants if one.target == variant.target)
    references = [REFERENCE, TURN_REFERENCE] if variant is first else []
    arms = [*(arms[variant.target] for arms in references), *variant.arms]
    return [START_S, *(arm.seconds for arm in arms), *([STATE_S] if variant.state else [])]
