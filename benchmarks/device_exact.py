"""The promise on the trained LFM2-MoE pair: every way to make a reply gives the tokens of the plain one made alone.

Only tokens of rounds that verified drafts count, and only in arms where drafts were rejected too.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.exact_neighbours import Neighbours
from benchmarks.exact_pair import DRAFTER, TARGET, Job, four_bit_target, jobs_of, misled_drafter, unpacked
from benchmarks.exact_report import HEADER, Arm, ArmReport, Budget
from benchmarks.exact_served import Started, compare_states, start
from benchmarks.exact_variants import (
    MOST_TOKENS,
    REFERENCE,
    REPEATED,
    START_S,
    TURN_REFERENCE,
    TURNS,
    VARIANTS,
    Variant,
    expected_steps,
    reply_tokens,
)
from benchmarks.replies import Made, make
from tfjax.config import ServeConfig
from tfjax.engine.api import Generation
from tfjax.engine.engine import Engine

LANES, LONGEST_PROMPT = 16, 4000
CONTEXT = LONGEST_PROMPT + MOST_TOKENS + 320
"""Whatever the replies' length, so that one compile cache serves all runs."""
JOBS, FIRST_TURN, QUESTION = 24, 96, 9
TURNED = 5
"""Places by which the replies of a repeated arm move on, so that they have other neighbours."""
STATE_STREAMS, STATE_JOBS, STATE_TOKENS, STATE_PROMPT = 4, 6, 96, 100


def measure_exact(
    goal: int, seconds: float, kernels: str = "auto", write: Callable[[dict[str, Any]], object] = lambda found: None
) -> dict[str, Any]:
    """Prints a line for each arm. `failed` tells that a reply or a state of the cache was not its reference's.

    `write` is told what was found so far after every arm.
    """
    with tempfile.TemporaryDirectory() as folder:
        return Proof(goal, seconds, Path(folder), kernels, write).run()


class Proof:
    """Runs all variants; what there is no time for is left out and told."""

    def __init__(
        self, goal: int, seconds: float, folder: Path, kernels: str, write: Callable[[dict[str, Any]], object]
    ) -> None:
        self._goal, self._folder, self._reply = goal, folder, reply_tokens(goal)
        self._kernels, self._write = kernels, write
        self._budget = Budget(seconds, [step for variant in VARIANTS for step in expected_steps(variant)])
        self._start_s = START_S
        self._salts = itertools.count()
        self._reports: list[ArmReport] = []
        self._states: list[dict[str, Any]] = []
        self._starts: list[dict[str, Any]] = []
        self._left_out: list[str] = []
        self._errors: list[str] = []
        self._jobs: dict[str, list[Job]] = {}
        self._turns: dict[str, list[Job]] = {}
        self._first_turns: dict[str, Job] = {}
        self._wanted: dict[tuple[str, str], Made] = {}

    def run(self) -> dict[str, Any]:
        print(f"replies of {self._reply} tokens\n{HEADER}")
        for variant in VARIANTS:
            if self._budget.left_s < self._start_s:
                self._left_out.append(variant.name)
                continue
            steps = self._budget.steps - len(expected_steps(variant))
            try:
                self._run_variant(variant)
            except Exception as error:  # noqa: BLE001 - the other variants still run
                self._errors.append(f"{variant.name}: {type(error).__name__}: {error}"[:500])
                print(self._errors[-1], flush=True)
            self._budget.skip_to(steps)
        found = self._found()
        tell(found)
        return found

    def _found(self) -> dict[str, Any]:
        """So far."""
        found = summary(self._goal, self._reports, self._states, self._left_out, self._errors)
        return found | {"reply_tokens": self._reply, "starts": self._starts}

    def _run_variant(self, variant: Variant) -> None:
        self._budget.begin()
        began = time.monotonic()
        started = start(self._config(variant))
        self._start_s = time.monotonic() - began
        about = started.about
        print(f"{variant.name}: started in {self._start_s:.1f} s, {about['arithmetic']}, {about['drafter']['name']}")
        self._starts.append({"variant": variant.name, "seconds": round(self._start_s, 1)} | about)
        if variant.target not in self._jobs:
            with started.engine() as engine:
                self._make_references(engine, variant)
        for priced, arms in itertools.groupby(variant.arms, lambda arm: arm.priced):
            with started.engine(priced=priced) as engine:
                for arm in arms:
                    self._budget.begin()
                    self._run_arm(engine, variant, arm)
        if variant.state:
            self._budget.begin()
            self._compare_states(started, variant)

    def _config(self, variant: Variant) -> ServeConfig:
        return ServeConfig(
            model=str(four_bit_target(self._folder) if variant.target == "4 bits" else TARGET),
            drafter=str(self._drafter(variant)),
            drafter_bits=variant.bits,
            drafter_policy="always",
            held_drafts=variant.held,
            parallel=LANES,
            context=CONTEXT,
            prompt_cache_gib=0.25,
            kernels=self._kernels,
        )

    def _drafter(self, variant: Variant) -> Path:
        path = self._folder / f"{variant.drafter}-drafter"
        if variant.drafter == "stored":
            return DRAFTER
        if path.exists():
            return path
        return misled_drafter(path) if variant.drafter == "misled" else unpacked(DRAFTER, path)

    # References

    def _make_references(self, engine: Engine, variant: Variant) -> None:
        """Each reply alone and plain, then the second turns of some conversations."""
        target = variant.target
        jobs = jobs_of(engine.tokenizer, JOBS, self._reply, LONGEST_PROMPT)[: REFERENCE[target].jobs]
        self._jobs[target] = self._refer(engine, variant, REFERENCE[target], jobs)
        turns = [self._second_turn(job, target) for job in self._jobs[target][: TURNS.jobs]]
        self._turns[target] = self._refer(engine, variant, TURN_REFERENCE[target], turns)

    def _second_turn(self, job: Job, target: str) -> Job:
        """It extends prompt and reply; that reply is kept in the prefix cache once the first turn was made."""
        first = replace(job, tokens=min(FIRST_TURN, job.tokens))
        reply = self._wanted[target, job.name].tokens[: first.tokens]
        second = replace(job, name=f"{job.name}, second turn", prompt=(*job.prompt, *reply, *job.prompt[:QUESTION]))
        self._first_turns[second.name] = first
        return second

    def _refer(self, engine: Engine, variant: Variant, arm: Arm, jobs: Sequence[Job]) -> list[Job]:
        """Returns the jobs that there was time for."""
        self._budget.begin()
        report, done = ArmReport(variant.name, arm.name, 1), list[Job]()
        for job in jobs:
            if not self._budget.fitting(1, job.tokens, 1):
                break
            began = time.monotonic()
            made = make(engine, [self._generation(job, draft=False)], 1)[0]
            took_s = time.monotonic() - began
            self._budget.observe(1, len(made.tokens), took_s)
            self._wanted[variant.target, job.name] = made
            report.add(job.name, made, made)
            report.seconds += took_s
            done.append(job)
        report.left_out = len(jobs) - len(done)
        print(report.line(), flush=True)
        self._starts[-1][arm.name] = {"replies": len(done), "of": len(jobs), "tokens": report.tokens}
        return done

    def _generation(self, job: Job, *, draft: bool, salt: str | None = None) -> Generation:
        """With a salt of its own nothing of its prompt is kept from another reply."""
        own = f"{next(self._salts)}" if salt is None else salt
        return Generation(job.name, job.prompt, job.tokens, job.sampling, ignore_eos=True, draft=draft, cache_salt=own)

    # Arms

    def _run_arm(self, engine: Engine, variant: Variant, arm: Arm) -> None:
        jobs = (self._turns if arm.turns > 1 else self._jobs)[variant.target][: arm.jobs]
        report, repeats = ArmReport(variant.name, arm.name, arm.streams), arm.copies == REPEATED
        self._reports.append(report)
        for copy in range(arm.copies if jobs else 0):
            if repeats and sum(one.counted for one in self._reports) >= variant.share * self._goal:
                break
            first = TURNED * copy % len(jobs)
            fit = self._budget.fitting(arm.streams, self._reply * arm.turns, len(jobs))
            report.left_out += 0 if repeats else len(jobs) - fit
            if fit:
                self._make_all(engine, variant, arm, [*jobs[first:], *jobs[:first]][:fit], report)
            elif repeats:
                report.stopped = True
                break
        if report.replies or report.left_out or report.stopped:
            print(report.line(), flush=True)
        self._write(self._found())

    def _make_all(self, engine: Engine, variant: Variant, arm: Arm, jobs: Sequence[Job], report: ArmReport) -> None:
        """Make each reply once, and compare."""
        began, before = time.monotonic(), report.tokens
        salts = [f"{next(self._salts)}" for _ in jobs]
        pairs = list(zip(jobs, salts, strict=True))
        if arm.turns > 1:
            firsts = [self._generation(self._first_turns[job.name], draft=True, salt=salt) for job, salt in pairs]
            make(engine, firsts, arm.streams)
        drafts = [not arm.plain_every or number % arm.plain_every > 0 for number in range(len(jobs))]
        generations = [
            self._generation(job, draft=draft, salt=salt) for (job, salt), draft in zip(pairs, drafts, strict=True)
        ]
        neighbours = Neighbours(engine, generations[0]) if arm.cancels else None
        for job, made in zip(jobs, make(engine, generations, arm.streams, neighbours), strict=True):
            report.add(job.name, made, self._wanted[variant.target, job.name])
        if neighbours is not None:
            neighbours.end()
        took_s = time.monotonic() - began
        report.seconds += took_s
        self._budget.observe(arm.streams, report.tokens - before, took_s)

    def _compare_states(self, started: Started, variant: Variant) -> None:
        short = [job for job in self._jobs[variant.target] if len(job.prompt) <= STATE_PROMPT]
        tokens = min(STATE_TOKENS, self._reply)
        # Each is made twice, and looking after every round takes as long again.
        jobs = short[: self._budget.fitting(1, 4 * tokens, STATE_JOBS)]
        if not jobs:
            self._left_out.append(f"{variant.name}, states of the cache")
            return
        generations = [replace(self._generation(job, draft=True), max_tokens=tokens) for job in jobs]
        watched = compare_states(started, generations, STATE_STREAMS)
        found = {"variant": variant.name, "replies": len(jobs), "compared": watched.compared}
        self._states.append(found | {"different": watched.different})
        print(f"{variant.name}: {watched.compared} states of the cache, {len(watched.different)} different", flush=True)


def summary(
    goal: int,
    reports: Sequence[ArmReport],
    states: Sequence[dict[str, Any]],
    left_out: Sequence[str],
    errors: Sequence[str],
) -> dict[str, Any]:
    """What all arms give together. `reached` tells whether as many tokens counted as were wanted."""
    counted = sum(one.counted for one in reports)
    different = [f"{one.variant}, {one.arm}: {what}" for one in reports for what in one.different]
    other_states = [what for state in states for what in state["different"]]
    return {
        "goal": goal,
        "counting_tokens": counted,
        "reached": counted >= goal,
        "replies": sum(one.replies for one in reports),
        "different": len(different),
        "states": sum(state["compared"] for state in states),
        "different_states": len(other_states),
        "differences": [*different, *other_states],
        "failed": bool(different or other_states or errors),
        "errors": list(errors),
        "left_out": list(left_out),
        "left_out_replies": sum(one.left_out for one in reports),
        "stopped_early": [one.shortened for one in reports if one.shortened],
        "cache_states": list(states),
        "arms": [one.as_dict() for one in reports],
    }


def tell(found: dict[str, Any]) -> None:
    """The sum in a line, then what there was no time for, then the first differences."""
    print(
        f"{found['counting_tokens']} counting tokens of {found['goal']} wanted; {found['replies']} replies, "
        f"{found['different']} different; {found['states']} states of the cache, {found['different_states']} different"
    )
    left = [*(f"{name} (all of it)" for name in found["left_out"]), *found["stopped_early"]]
    if left or not found["reached"]:
        early = "" if found["reached"] else f"STOPPED EARLY, {found['goal'] - found['counting_tokens']} tokens short; "
        print(f"{early}no time was left for: {'; '.join(left) or 'nothing that was planned'}")
    for what in found["differences"][:16]:
        print(f"  DIFFERENT: {what}")
