"""What was found, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from tfjax.kernels.contract.gates import GATES


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate of a kernel at one size. `passed` is None where it was not run, and `detail` says why."""

    kernel: str
    case: str
    gate: str
    passed: bool | None
    detail: str
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """For progress."""
        word = {True: "pass", False: "FAIL", None: "not run"}[self.passed]
        return f"{self.kernel} {self.gate} ({self.case}) {word} {self.seconds:.1f} s: {self.detail[:160]}"


@dataclass(frozen=True, slots=True)
class ControlResult:
    """A planted fault. `red` is None where it was not run; a fault that raises was not found by the gate."""

    kernel: str
    control: str
    gate: str
    red: bool | None
    detail: str

    @property
    def line(self) -> str:
        """For progress."""
        word = {True: "red", False: "MISSED", None: "not run"}[self.red]
        return f"{self.kernel} control '{self.control}' {word}: {self.detail[:160]}"


@dataclass(slots=True)
class Report:
    """Everything of one run."""

    route: str
    machine: str
    gates: list[GateResult] = field(default_factory=list)
    controls: list[ControlResult] = field(default_factory=list)

    @property
    def kernels(self) -> list[str]:
        return list(dict.fromkeys(result.kernel for result in self.gates))

    def _state(self, kernel: str) -> str:
        """`fail`, `pass` where every gate was run and passed, else `part`."""
        results = [result for result in self.gates if result.kernel == kernel]
        if any(result.passed is False for result in results):
            return "fail"
        run = {result.gate for result in results if result.passed}
        skipped = any(result.passed is None for result in results)
        return "part" if skipped or run != set(GATES) else "pass"

    @property
    def summary(self) -> str:
        """The contract's last line."""
        states = [self._state(kernel) for kernel in self.kernels]
        run = [result for result in self.controls if result.red is not None]
        red = sum(bool(result.red) for result in run)
        part = f", {states.count('part')} in part" if "part" in states else ""
        unrun = f", {len(self.controls) - len(run)} not run" if len(run) < len(self.controls) else ""
        return (
            f"{len(states)} kernels: {states.count('pass')} pass gates 1-4, {states.count('fail')} fail{part}; "
            f"{len(self.controls)} controls: {red} red as planted, {len(run) - red} missed{unrun}"
        )

    @property
    def green(self) -> bool:
        """Nothing that was run failed, and no control was missed."""
        return all(x.passed is not False for x in self.gates) and all(x.red is not False for x in self.controls)

    def lines(self) -> Iterable[str]:
        """Failures in full, the rest one line a kernel, then what was not run."""
        for kernel in self.kernels:
            results = [result for result in self.gates if result.kernel == kernel and result.passed is not None]
            for gate in GATES:
                of_gate = [result for result in results if result.gate == gate]
                failed = [result for result in of_gate if not result.passed]
                if of_gate and not failed:
                    seconds = sum(result.seconds for result in of_gate)
                    yield f"{kernel:17} {gate:9} pass, {len(of_gate)} sizes, {seconds:.1f} s; {of_gate[-1].detail}"
                for result in failed:
                    yield f"{kernel:17} {gate:9} FAIL {result.case}: {result.detail}"
        for control in self.controls:
            if control.red is False:
                yield f"{control.kernel:17} control '{control.control}' ({control.gate}) MISSED: {control.detail}"
        unrun: dict[str, list[str]] = {}
        for result in self.gates:
            if result.passed is None:
                unrun.setdefault(result.detail, []).append(f"{result.kernel} {result.gate} ({result.case})")
        for control in self.controls:
            if control.red is None:
                unrun.setdefault(control.detail, []).append(f"{control.kernel} control '{control.control}'")
        for reason, which in unrun.items():
            yield f"not run here: {'; '.join(which)}: {reason}"
        yield self.summary

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"summary": self.summary}
