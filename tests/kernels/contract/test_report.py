from __future__ import annotations

from tfjax.kernels.contract.gates import GATES
from tfjax.kernels.contract.report import ControlResult, GateResult, Report


def report_of(*states: bool | None, controls: tuple[bool | None, ...] = (True, True)) -> Report:
    """One kernel for each state of its last gate."""
    report = Report("pallas_gpu", "a machine")
    for number, state in enumerate(states):
        name = f"kernel{number}"
        report.gates.extend(GateResult(name, "size", gate, True, "fine") for gate in GATES[:-1])
        report.gates.append(GateResult(name, "size", GATES[-1], state, "the reason"))
    report.controls.extend(ControlResult("kernel0", f"fault {i}", "rows", red, "why") for i, red in enumerate(controls))
    return report


def test_all_green() -> None:
    report = report_of(True, True)
    assert report.summary == "2 kernels: 2 pass gates 1-4, 0 fail; 2 controls: 2 red as planted, 0 missed"
    assert report.green


def test_a_failed_gate_a_missed_control() -> None:
    report = report_of(True, False, controls=(True, False))
    assert report.summary == "2 kernels: 1 pass gates 1-4, 1 fail; 2 controls: 1 red as planted, 1 missed"
    assert not report.green
    text = "\n".join(report.lines())
    assert "kernel1           bounds    FAIL size: the reason" in text
    assert "control 'fault 1' (rows) MISSED: why" in text
    assert not report_of(True, controls=(False,)).green
    assert not report_of(False).green


def test_what_was_not_run_is_named_with_its_reason() -> None:
    report = report_of(True, None, controls=(True, None))
    assert report.summary == (
        "2 kernels: 1 pass gates 1-4, 0 fail, 1 in part; 2 controls: 1 red as planted, 0 missed, 1 not run"
    )
    lines = list(report.lines())
    assert "not run here: kernel1 bounds (size): the reason" in lines
    assert "not run here: kernel0 control 'fault 1': why" in lines
    assert lines[-1] == report.summary
    assert report.as_json()["gates"][-1] == {
        "kernel": "kernel1",
        "case": "size",
        "gate": "bounds",
        "passed": None,
        "detail": "the reason",
        "seconds": 0.0,
    }


def test_a_gate_that_no_size_ran_is_no_pass() -> None:
    report = Report("pallas_gpu", "a machine", [GateResult("kernel", "size", "rows", True, "")])
    assert "0 pass gates 1-4, 0 fail, 1 in part" in report.summary
