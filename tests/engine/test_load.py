from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.engine.scripted_step import VOCAB, Fault, ScriptedStep
from tests.models.tiny import TINY, random_llama
from tests.models.tiny_stacked import KERNELS, loaded_stacked
from tfjax.engine import load
from tfjax.engine.buckets import kernel_plan, row_invariant_plan, single_bucket_plan
from tfjax.engine.kernel_choice import XLA, Kernels
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.probe import ProbeReport
from tfjax.engine.weights import LoadedModel
from tfjax.kernels.routes import Route
from tfjax.lanes.settings import Settings
from tfjax.models.llama import FAMILY

MEMORY = MemoryPlan(256, False, 2, 8, cache_bytes=0, weight_bytes=0, budget_bytes=0)


class StubBackend:
    """What start_backend needs of a TargetBackend, on a scripted step."""

    fault: Fault | None = None
    widths: tuple[int, ...] = ()

    def __init__(self, model: Any, step: Any, plan: Any, memory: MemoryPlan):
        self.step = ScriptedStep(memory.lanes, memory.pages, self.fault)
        self.plan, self.memory, self.vocab, self.state = plan, memory, VOCAB, self.step.state
        self.kernels = model.kernels if model else XLA
        self.page_table = np.zeros((memory.lanes + 1, memory.pages_per_lane), np.int32)
        self.warm = False

    def warm_up(self) -> None:
        self.warm = True


def started(monkeypatch: pytest.MonkeyPatch, fault: Fault | None = None) -> tuple[Any, Any, list[str]]:
    monkeypatch.setattr(load, "TargetBackend", StubBackend)
    monkeypatch.setattr(StubBackend, "fault", staticmethod(fault) if fault else None)
    phases: list[str] = []
    model = LoadedModel(FAMILY, TINY, random_llama(TINY, np.float32), np.float32)
    backend, report = load.start_backend(model, MEMORY, lambda phase, share: phases.append(phase))
    return backend, report, phases


class StubKernels:
    """A backend whose stacked form is faulty and whose modules are not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: Fault | None, error: Exception | None = None):
        self.made: list[StubBackend] = []
        outer = self

        class Stub(StubBackend):
            def __init__(self, model: Any, step: Any, plan: Any, memory: MemoryPlan):
                if error is not None and model.kernels.stacked:
                    raise error
                self.fault = fault if model.kernels.stacked else None
                super().__init__(model, step, plan, memory)
                outer.made.append(self)

        monkeypatch.setattr(load, "TargetBackend", Stub)
        monkeypatch.setattr(load, "how_far", lambda backend, reference: "")
        self.model = loaded_stacked(TINY, np.float32)
        self.backend, self.report = load.start_backend(self.model, MEMORY, lambda phase, share: None)


def test_kernels_that_are_exact_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(load, "find_least_rows", None)
    started = StubKernels(monkeypatch, None)
    assert started.backend.plan == kernel_plan(32)
    assert started.backend.kernels is KERNELS
    assert "kernels: reference (a test)" in caplog.text
    assert "(row-invariant arithmetic, 4 widths)" in caplog.text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "kernels are not exact: bucket of 16 rows"),
        (RuntimeError("no such tile"), "failed: RuntimeError: no such"),
    ],
    ids=["not exact", "no program"],
)
def test_kernels_that_fail_give_way_to_the_modules(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception | None, words: str
) -> None:
    wanted = np.asarray(random_llama(TINY, np.float32).layers[1].mlp.down.weight[...])
    made: list[Any] = []
    monkeypatch.setattr(load, "Step", lambda module, *_, **__: made.append(module))
    started = StubKernels(monkeypatch, by_shape, error)
    assert started.report.passed
    assert started.backend.plan == row_invariant_plan(2)
    assert started.backend.kernels.route == "reference"
    assert not started.backend.kernels.stacked
    assert words in started.backend.kernels.reason
    assert words in caplog.text
    assert "going on without them" in caplog.text
    assert np.array_equal(made[-1].layers[1].mlp.down.weight[...], wanted)


def by_shape(forward: Any, hidden: Any, logits: Any) -> None:
    if forward.bucket.rows == 16:
        logits += 0.25


def by_company(forward: Any, hidden: Any, logits: Any) -> None:
    """Differs also where all forwards have one shape."""
    if forward.used > 4:
        logits += 0.25


def test_a_row_invariant_backend_gets_its_buckets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    backend, report, phases = started(monkeypatch)
    assert (report.passed, report.arithmetic) == (True, "row-invariant")
    assert len(backend.plan.verify) > 1
    assert "compiling" in phases
    assert backend.warm
    assert any("proving" in phase for phase in phases)
    assert f"compiling {len(backend.plan.all)} programs; the first start takes a minute or two" in caplog.text
    proved = f"{report.rows_compared} rows in {len(report.arrangements)} arrangements have equal bits"
    widths = len(backend.plan.widths)
    assert f"row invariance proved: {proved} (row-invariant arithmetic, {widths} widths)" in caplog.text


def test_one_that_is_not_gets_a_single_bucket(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    backend, report, phases = started(monkeypatch, by_shape)
    assert (report.passed, report.arithmetic) == (True, "single-bucket")
    assert len(backend.plan.all) == 1
    assert sum("proving" in phase for phase in phases) == 2
    assert "bucket of 16 rows" in caplog.text
    assert "(single-bucket arithmetic, every forward computes 64 rows, because row-invariant: bucket of" in caplog.text


@pytest.mark.parametrize(
    ("cache", "words"), [("/cache/jax", "read them from /cache/jax"), (None, "there is no compile cache")]
)
def test_compiling_says_where_the_programs_are_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cache: str | None, words: str
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(load, "jax", SimpleNamespace(config=SimpleNamespace(jax_compilation_cache_dir=cache)))
    backend: Any = StubBackend(None, None, single_bucket_plan(), MEMORY)
    load.compile_buckets(backend, lambda phase, share: None)
    assert words in caplog.text


@pytest.mark.parametrize(("is_new", "words"), [(True, "measured now"), (False, "kept from an earlier start")])
def test_window_times_say_whether_they_are_new(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_new: bool, words: str
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(load, "cached", lambda *_: ({2: 1.0, 64: 23.14}, is_new))
    backend: Any = StubBackend(None, None, single_bucket_plan(), MEMORY)
    checkpoint: Any = SimpleNamespace(config={})
    assert load.time_widths(backend, checkpoint, lambda phase, share: None)[64] == 23.14
    assert f"a forward takes 1.0 ms for 2 rows, 23.1 ms for 64 rows ({words})" in caplog.text


def test_one_that_is_exact_in_no_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(load.NotExact) as refusal:
        started(monkeypatch, by_company)
    for word in ("row-invariant", "single-bucket", "logits of the row at position", "rows", "JAX_PLATFORMS", "--dtype"):
        assert word in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("model-Q4_K_M.gguf", "model"),
        ("model.IQ2_XS.gguf", "model"),
        ("model-BF16.gguf", "model"),
        ("model-f16.gguf", "model"),
        ("Qwen-2.gguf", "Qwen-2"),
        ("plain", "plain"),
    ],
)
def test_a_file_gives_its_models_name(name: str, wanted: str) -> None:
    assert load.model_id(Path("somewhere") / name) == wanted


def test_a_directory_gives_its_own_name(tmp_path: Path) -> None:
    directory = tmp_path / "Llama-3.2-1B.Q8_0"
    directory.mkdir()
    assert load.model_id(directory) == "Llama-3.2-1B.Q8_0"
    assert load.model_id(directory / ".") == "Llama-3.2-1B.Q8_0"


def test_a_hub_snapshot_is_named_after_its_repository(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--HuggingFaceTB--SmolLM2-135M-Instruct" / "snapshots" / "12fd25f77366"
    snapshot.mkdir(parents=True)
    assert load.model_id(snapshot) == "SmolLM2-135M-Instruct"


def test_times_and_capabilities_tell_what_runs() -> None:
    model = LoadedModel(FAMILY, TINY, random_llama(TINY, np.float32), np.float32)
    checkpoint: Any = SimpleNamespace(config={}, architecture="LlamaForCausalLM", format="safetensors")
    report = ProbeReport("row-invariant", 1, ("one",), None)
    settings = Settings(lanes=2, context=256, pages=8, page_rows=64, vocab_size=VOCAB)
    keys, told = [], []
    for route in Route:
        backend: Any = StubBackend(None, None, single_bucket_plan(), MEMORY)
        backend.kernels, backend.window_ms = Kernels(route, "why"), {}
        keys.append(load.timing_key(backend, checkpoint))
        told.append(load.describe(checkpoint, model, backend, report, settings)["kernels"])
    assert keys[0] != keys[1]
    assert told == [{"route": "reference", "reason": "why"}, {"route": "pallas_gpu", "reason": "why"}]
