"""Planted faults stay plantable, and a fault is one."""

from __future__ import annotations

from typing import Any

import pytest

from tfjax.kernels.contract.controls import Control, faulty
from tfjax.kernels.contract.gates import GATES
from tfjax.kernels.contract.subjects import SUBJECTS

CONTROLS = [(name, control) for name, subject in SUBJECTS.items() for control in subject.controls]


@pytest.mark.parametrize(("name", "control"), CONTROLS, ids=lambda x: getattr(x, "name", x))
def test_every_fault_can_be_planted(name: str, control: Any) -> None:
    module = faulty(SUBJECTS[name].device, control)
    assert callable(getattr(module, name))
    assert control.gate in GATES
    assert all(old != new for old, new in control.changes)


def test_every_kernel_has_faults_for_two_gates() -> None:
    for subject in SUBJECTS.values():
        assert len(subject.controls) >= 2
        assert len({control.gate for control in subject.controls}) >= 2
        assert len({control.name for control in subject.controls}) == len(subject.controls)


def test_a_fault_whose_text_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match="change the control with the kernel"):
        faulty("tfjax.kernels.gpu.embed_rows", Control("gone", "rows", (("no such text", ""),)))
