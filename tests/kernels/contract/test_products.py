"""The contracts of products of packed weights and of many rows, as far as a machine without a GPU runs them."""

from __future__ import annotations

import pytest

from tfjax.kernels.contract.running import run
from tfjax.kernels.contract.subjects import SUBJECTS
from tfjax.kernels.routes import Route

NAMES = ("packed_matmul", "packed_glu", "embed_packed_rows", "tall_matmul", "tall_glu")


# The interpreter multiplies by numpy, which warns of the poison that no result may show.
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.timeout(600)
def test_the_interpreter_passes_and_finds_the_faults(name: str) -> None:
    report = run([name], say=lambda line: None)
    assert report.green, "\n".join(report.lines())
    assert {result.gate for result in report.gates if result.passed} == {"reference", "stress", "bounds"}
    assert sum(control.red is True for control in report.controls) >= 2


@pytest.mark.parametrize("name", ["embed_packed_rows", "packed_matmul"])
def test_the_reference_passes(name: str) -> None:
    report = run([name], route=Route.REFERENCE, say=lambda line: None, counts=(1, 2, 9))
    assert report.green, "\n".join(report.lines())
    assert {result.gate for result in report.gates if result.passed} == {"rows", "reference", "stress"}


@pytest.mark.parametrize("name", ["packed_matmul", "packed_glu"])
def test_packed_products_are_held_to_the_dense_route(name: str) -> None:
    """At one tile's height and at several."""
    dense = [bucket for bucket, more in SUBJECTS[name].variants if more.get("dense_first")]
    assert min(dense) < 128 < max(dense)
