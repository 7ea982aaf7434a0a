"""From a model's name to a running engine, with every phase shown."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from tfjax import __version__
from tfjax.checkpoints import Checkpoint
from tfjax.checkpoints.cache import cache_home
from tfjax.checkpoints.digest import weights_sha256
from tfjax.config import ServeConfig
from tfjax.engine.buckets import Plan, kernel_plan, row_invariant_plan, single_bucket_plan
from tfjax.engine.compiles import compiles
from tfjax.engine.compiling import Prepare, compile_all
from tfjax.engine.drafters.choosing import choose_drafter
from tfjax.engine.drafters.joining import add_drafter, describe_drafters, host_drafts
from tfjax.engine.engine import Engine, Served
from tfjax.engine.fitting import fit_both
from tfjax.engine.kept_programs import kept_for
from tfjax.engine.kernel_choice import Kernels
from tfjax.engine.least_rows import find_least_rows
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.nearness import Reference, how_far
from tfjax.engine.opening import loop_settings, open_model
from tfjax.engine.packing import weights_of
from tfjax.engine.probe import ProbeReport, probe
from tfjax.engine.rows_buffer import RowsBuffer, Run, lay_out
from tfjax.engine.step import Step
from tfjax.engine.target import TargetBackend
from tfjax.engine.timing import cached, code_version, measure
from tfjax.engine.weights import LoadedModel, Progress
from tfjax.kernels.routes import Route
from tfjax.lanes.settings import Settings

log = logging.getLogger(__name__)

_QUANTIZATION = re.compile(r"[.-](I?Q\d\w*|F16|F32|BF16)$", re.IGNORECASE)

FIRST_COPY_WIDTH = {"cpu": 1}
"""Drafts of a first copy: on CPU the second row of a window is free, every further one costs; elsewhere three are."""


class NotExact(RuntimeError):
    """This backend cannot keep the promise in any known arrangement; serving on it is refused."""


def load_engine(config: ServeConfig, progress: Progress) -> Engine:
    """Read the model and its drafter, compile, prove row invariance, time the widths, and start the engine.

    Raises:
        CheckpointError, ConfigError, DoesNotFit, NotExact, UnusableDrafter: with what to do about it.
    """
    opened = open_model(config, progress)
    path, checkpoint, tokenizer, model = opened.path, opened.checkpoint, opened.tokenizer, opened.model
    choice = choose_drafter(config, model, tokenizer, progress)
    memory, choice = fit_both(config, model, choice)
    target, report = start_backend(model, memory, progress, choice.model.taps if choice.model else ())
    target.window_ms = time_widths(target, checkpoint, progress)
    backend, choice = add_drafter(config, target, choice, timing_key(target, checkpoint), progress)
    settings = loop_settings(
        target,
        draft_tokens=config.draft_tokens if config.drafts else 0,
        first_width=FIRST_COPY_WIDTH.get(jax.default_backend(), 3),
    )
    weights = {"checkpoint": {"name": path.name, "sha256": weights_sha256(checkpoint, progress)}}
    about = weights | describe(checkpoint, model, target, report, settings) | describe_drafters(backend, choice, config)
    served = Served(
        id=model_id(path),
        tokenizer=tokenizer,
        eos_ids=tokenizer.eos_ids,
        generation_config=checkpoint.generation_config,
        capabilities=about,
        counters=lambda: {"compiles_total": float(compiles())},
    )
    progress("ready", 1.0)
    proposer = host_drafts(choice, settings, target.widths[-1])
    return Engine(backend, settings, served, max_queue=config.max_queue, proposer=proposer)


def model_id(path: Path) -> str:
    """The name that requests use: the hub repository's, the directory's, or the file's without its quantization."""
    path = path.absolute()
    if path.parent.name == "snapshots":  # models--OWNER--NAME/snapshots/REVISION, as the hub's cache lays it
        return path.parent.parent.name.rpartition("--")[2]
    return path.name if path.is_dir() else _QUANTIZATION.sub("", path.name.removesuffix(".gguf"))


def start_backend(
    model: LoadedModel, memory: MemoryPlan, progress: Progress, taps: Sequence[int] = ()
) -> tuple[TargetBackend, ProbeReport]:
    """Compile and probe; where rows are not invariant, go over to one bucket and probe that. `taps` are for a drafter.

    A model in stacked form, whose kernels fail here, is laid out in modules; its own parameters are given away then.

    Raises:
        NotExact: nothing holds.
    """
    refused: list[str] = []
    log.info("kernels: %s (%s)", model.kernels.route, model.kernels.reason)
    if model.kernels.stacked:
        started = start_kernels(model, memory, progress, taps, refused)
        if started is not None:
            return started
        model = without_kernels(model, refused[0])
    least = find_least_rows(weights_of(nnx.state(model.module)))
    refused += [least.reason] if least.reason else []
    plans = [] if least.rows is None else [row_invariant_plan(least.rows)]
    for plan in (*plans, single_bucket_plan()):
        backend, report = attempt(model, plan, memory, progress, taps)
        if report.passed:
            log.info("%s", outcome(plan, report, refused))
            return backend, report
        refused.append(f"{plan.arithmetic}: {report.difference}")
        log.warning("%s arithmetic is not exact here: %s", plan.arithmetic, report.difference)
        del backend
    raise NotExact(
        f"on {jax.devices()[0].device_kind} the same row gets different bits in different forwards, so drafts could "
        f"change tokens ({'; '.join(refused)}). Try another device (JAX_PLATFORMS=cpu) or another --dtype"
    )


def attempt(
    model: LoadedModel,
    plan: Plan,
    memory: MemoryPlan,
    progress: Progress,
    taps: Sequence[int],
    beside: Sequence[Prepare] = (),
) -> tuple[TargetBackend, ProbeReport]:
    """Compile and probe one plan; `beside` are other programs that are compiled in the same time."""
    kept = kept_for(model.module, model.config, model.kernels.route)
    step = Step(model.module, taps, model.kernels.route, kept, hands_round=hands_round())
    backend = TargetBackend(model, step, plan, memory)
    compile_buckets(backend, progress, beside)
    progress(f"proving row invariance ({plan.arithmetic})", 0.0)
    report, backend.state = probe(backend.step, plan, memory, backend.vocab, backend.state)
    return backend, report


def hands_round() -> bool:
    """Whether results lie in memory of earlier ones: where XLA launches graphs, whose nodes it rewrites for others."""
    return jax.default_backend() == "gpu"


def start_kernels(
    model: LoadedModel, memory: MemoryPlan, progress: Progress, taps: Sequence[int], refused: list[str]
) -> tuple[TargetBackend, ProbeReport] | None:
    """The same by device kernels; None, with the reason in `refused`, where they do not compile or are not exact.

    Values are compared with the reference operators' too, as equal bits may be equally wrong.
    """
    form, name = model.family.stacked, str(model.kernels.route)
    assert form is not None
    plan = kernel_plan(form.tile_rows(model.config))
    try:
        reference = Reference(model, plan.verify[0])
        backend, report = attempt(model, plan, memory, progress, taps, [reference.prepare])
        far = how_far(backend, reference) if report.passed else ""
    except Exception as error:  # noqa: BLE001 - compilers fail in many ways, and the reference still serves
        refused.append(f"{name} kernels failed: {type(error).__name__}: {str(error)[:500]}")
    else:
        if report.passed and not far:
            log.info("%s", outcome(plan, report, ()))
            return backend, report
        refused.append(f"{name} kernels are not exact: {report.difference or far}")
    log.warning("%s; going on without them", refused[-1])
    return None


def without_kernels(model: LoadedModel, reason: str) -> LoadedModel:
    """The model in modules. The given one's parameters are given away."""
    form = model.family.stacked
    assert form is not None
    return replace(model, module=form.unstacked(model.module), kernels=Kernels(Route.REFERENCE, reason))


def outcome(plan: Plan, report: ProbeReport, refused: Sequence[str]) -> str:
    """What was proved, and where every forward has one shape, what that costs and why it is so."""
    proved = f"{report.rows_compared} rows in {len(report.arrangements)} arrangements have equal bits"
    if plan.arithmetic == single_bucket_plan().arithmetic:
        how = f"every forward computes {plan.verify[-1].rows} rows, because {'; '.join(refused)}"
    else:
        how = f"{len(plan.widths)} widths"
    return f"row invariance proved: {proved} ({plan.arithmetic} arithmetic, {how})"


def compile_buckets(backend: TargetBackend, progress: Progress, beside: Sequence[Prepare] = ()) -> None:
    """Compile every bucket, and the programs `beside`, which begin first."""
    buckets = backend.plan.all
    cache = jax.config.jax_compilation_cache_dir
    later = f"later ones read them from {cache}" if cache else "so does every later one, for there is no compile cache"
    log.info("compiling %d programs; the first start takes a minute or two, %s", len(buckets), later)
    programs = [partial(backend.step.prepare, bucket, backend.state, backend.page_table) for bucket in buckets]
    compile_all([*beside, *programs], "compiling", progress)
    backend.warm_up()


def time_widths(backend: TargetBackend, checkpoint: Checkpoint, progress: Progress) -> Mapping[int, float]:
    """Milliseconds of a verify forward by width, from the cache or measured now."""
    progress("timing windows", 0.0)

    def run(width: int) -> None:
        bucket = backend.plan.verify_bucket(width, width)
        buffer = RowsBuffer(width)
        lay_out(buffer, [Run(0, 0, width)], tile_rows=bucket.tile_rows, scratch_lane=backend.memory.lanes)
        token = np.zeros(width, np.int32)
        stepped = backend.step(bucket, backend.state, token, buffer.matrix, backend.page_table)
        backend.state = stepped.state
        jax.block_until_ready(stepped.drawn)
        backend.step.give_back(bucket, stepped.drawn, stepped.token)

    key = timing_key(backend, checkpoint)
    table, is_new = cached(cache_home() / "timings", key, backend.widths, lambda: measure(backend.widths, run))
    times = ", ".join(f"{ms:.1f} ms for {width} rows" for width, ms in table.items())
    log.info("a forward takes %s (%s)", times, "measured now" if is_new else "kept from an earlier start")
    return table


def timing_key(backend: TargetBackend, checkpoint: Checkpoint) -> list[str]:
    """What measured times depend on."""
    return [
        code_version(),
        jax.__version__,
        jax.devices()[0].device_kind,
        str(os.cpu_count()),
        repr(checkpoint.config),
        repr(jax.tree.leaves(backend.state.cache)[0].dtype),
        str(backend.plan),
        str(backend.step.taps),
        str(backend.kernels.route),
        str(sum(parameter.nbytes for parameter in backend.step.parameters)),
    ]


def describe(
    checkpoint: Checkpoint, model: LoadedModel, backend: TargetBackend, report: ProbeReport, settings: Settings
) -> dict[str, Any]:
    """What /capabilities says about model, device and arithmetic."""
    device = jax.devices()[0]
    return {
        "architecture": checkpoint.architecture,
        "format": checkpoint.format,
        "dtype": np.dtype(model.dtype).name,
        "weights": model.weights,
        "device": {"platform": device.platform, "kind": device.device_kind},
        "versions": {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "flax")}
        | {"tfjax": __version__},
        "kernels": {"route": str(backend.kernels.route), "reason": backend.kernels.reason},
        "arithmetic": report.arithmetic,
        "row_invariance": {
            "proved": report.passed,
            "rows_compared": report.rows_compared,
            "arrangements": list(report.arrangements),
        },
        "verify_widths": list(backend.widths),
        "window_ms": {str(width): round(ms, 2) for width, ms in backend.window_ms.items()},
        "draft_tokens": settings.draft_tokens,
        "parallel": settings.lanes,
        "memory": asdict(backend.memory),
        "context_fitted": backend.memory.context_fitted,
    }
