"""A DSpark drafter in stacks behind its target: when it is chosen, what proves it, and what is left where it fails."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.engine.drafters.drafter_files import TOKENIZER
from tests.engine.drafters.dspark_files import TARGET, dspark_directory
from tests.engine.drafters.spark_pair import BLOCK, drafting_spark
from tests.engine.drafters.spark_stage import Stage
from tests.models.dspark_stacked import stacked_form
from tfjax.engine.drafters import starting
from tfjax.engine.drafters.assets import ASSETS
from tfjax.engine.drafters.block_plan import BlockBucket, BlockPlan
from tfjax.engine.drafters.block_step import ASK_FIELDS, BlockStep
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.drawing import Drafts
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.drafters.dspark_kernels import choose_dspark_kernels, difference
from tfjax.engine.drafters.loading import load_drafter
from tfjax.engine.drafters.starting import start_dspark
from tfjax.engine.kernel_choice import XLA, Kernels
from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.rows_buffer import FIELDS
from tfjax.engine.unread import nothing_unread
from tfjax.kernels.paged_attention import BLOCK_KEYS, PAGE_ROWS
from tfjax.kernels.routes import Route
from tfjax.kernels.specs import SPECS
from tfjax.models.dspark import FAMILY, DSpark
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.stacked_dspark import STACKED, StackedDSpark

BF16 = jnp.dtype(jnp.bfloat16)
BY_KERNELS = Kernels(Route.PALLAS_GPU, "a test", stacked=True)
BY_STACKS = Kernels(Route.REFERENCE, "a test", stacked=True)


def shipped(name: str) -> DSparkConfig:
    return DSparkConfig.from_hf(json.loads((ASSETS / name / "config.json").read_text("utf-8")))


def published() -> DSparkConfig:
    """LiquidAI's sizes."""
    spec = SPECS["DSpark drafter"]
    return replace(
        shipped("lfm2-moe-code-dspark"), hidden=spec.hidden, target_hidden=spec.hidden, layers=5, heads=spec.heads,
        kv_heads=spec.kv_heads, inner=spec.inner, vocab=spec.vocab, draft_vocab=spec.vocab, markov_rows=spec.vocab,
        markov_rank=256, block=9, taps=(2, 9, 17, 21, 27), confidence_temperatures=(),
    )  # fmt: skip


CONFIGS: dict[str, Callable[[], DSparkConfig]] = {
    "SmolLM2": functools.partial(shipped, "smollm2-135m-dspark"),
    "code": functools.partial(shipped, "lfm2-moe-code-dspark"),
    "LiquidAI": published,
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_known_drafters_run_by_the_targets_kernels(config: Callable[[], DSparkConfig]) -> None:
    found = choose_dspark_kernels(FAMILY, config(), BF16, BY_KERNELS, config().vocab)
    assert (found.route, found.stacked) == (Route.PALLAS_GPU, True)


@pytest.mark.parametrize(
    ("changes", "target", "words"),
    [
        ({}, XLA, "the target runs without kernels"),
        ({"head_dim": 96}, BY_KERNELS, "heads of 96"),
        ({"inner": 1000}, BY_KERNELS, "1000"),
        ({"taps": (1,), "target_hidden": 40}, BY_KERNELS, "40 x 256"),
    ],
)
def test_others_run_without(changes: dict[str, Any], target: Kernels, words: str) -> None:
    config = replace(shipped("lfm2-moe-code-dspark"), **changes)
    found = choose_dspark_kernels(FAMILY, config, BF16, target, config.vocab)
    assert (found.route, found.stacked) == (Route.REFERENCE, False)
    assert words in found.reason


def lowered(config: DSparkConfig, name: str, rows: int = 16, streams: int = 2) -> str:
    bucket = BlockBucket(streams, config.block + config.first_slot)
    int32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
    module: Any = nnx.eval_shape(lambda: STACKED.build(config, BF16, Route.PALLAS_GPU))
    step = BlockStep(module, BlockPlan(config.block, config.first_slot, (bucket,), (rows,)))
    cache = jax.eval_shape(lambda: STACKED.empty_cache(config, 65, PAGE_ROWS, 5, BF16))
    tables = jax.eval_shape(lambda: empty_tables(5, config.vocab, 64 * PAGE_ROWS))
    unread = jax.eval_shape(lambda: nothing_unread(5))
    features = jax.ShapeDtypeStruct((rows, len(config.taps) * config.target_hidden), BF16)
    asks = int32((len(FIELDS), streams)), int32((len(ASK_FIELDS), streams))
    programs: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "absorbing": (step.absorbing, (features, int32((2, rows)), int32((5, 64)))),
        "holding": (functools.partial(step.holding, bucket), (tables, unread, *asks, int32((5, 64)))),
    }
    function, arguments = programs[name]
    traced = jax.jit(function, donate_argnums=1).trace(step.parameters, cache, *arguments)
    text: str = traced.lower(lowering_platforms=("cuda",)).as_text()
    return text


@pytest.mark.parametrize(
    ("name", "config"),
    [
        pytest.param(name, config, marks=() if key == "code" else pytest.mark.slow, id=f"{name}-{key}")
        for name in ("absorbing", "holding")
        for key, config in CONFIGS.items()
    ],
)
def test_the_programs_lower_for_cuda(name: str, config: Callable[[], DSparkConfig]) -> None:
    """Layers are kernels alone, and the cache is written in place; a draw is two starts; heads are XLA's.

    All layers share one text, the last one too, whose residual stream nobody reads.
    """
    text = lowered(config(), name)
    starts, products = {"absorbing": (4, 0), "holding": (13, 2)}[name]
    assert text.count("custom_call @mosaic_gpu") == starts
    assert text.count("stablehlo.dot_general") == products
    assert text.count("output_operand_alias<") == 2


def stacked_model(stage: Stage, changed: Callable[[StackedDSpark], StackedDSpark] = lambda module: module) -> Any:
    model = drafting_spark(stage.spark)
    module = changed(stacked_form(stage.spark.module))
    return replace(model, loaded=replace(model.loaded, module=module, kernels=BY_STACKS))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is timed, and of drafters in modules nothing is compiled."""
    compile_all = starting.compile_dspark
    monkeypatch.setattr(starting, "time_holds", lambda drafter, directory, key: ({}, True))
    monkeypatch.setattr(starting, "SHORTER", {})
    monkeypatch.setattr(
        starting,
        "compile_dspark",
        lambda drafter, progress: compile_all(drafter, progress) if drafter.model.loaded.kernels.stacked else None,
    )


def started(stage: Stage, model: DraftingModel, tmp_path: Path) -> DSparkDrafter:
    return start_dspark(model, stage.target, BLOCK, lambda phase, share: None, timings=tmp_path, key=[], held=False)


@pytest.mark.usefixtures("quick")
@pytest.mark.timeout(300)
def test_drafts_in_stacks_are_the_oracles_and_are_proved(stage: Stage, tmp_path: Path) -> None:
    drafter = started(stage, stacked_model(stage), tmp_path)
    assert isinstance(drafter.step._model(drafter.step.parameters), StackedDSpark)
    assert all(not np.asarray(pool).any() for pool in jax.tree.leaves(drafter.cache))
    stream = stage.on_lane(1)
    pair = stage.started(stream, drafter=drafter)
    (tokens,) = pair.draft([stream], [BLOCK])
    assert list(tokens) == stage.says(stream).tokens
    pair.end([stream])


class Beside(StackedDSpark):
    """A fault: rows depend on how many are computed."""

    def block(self, *arguments: Any, **keywords: Any) -> Any:
        hidden, cache = super().block(*arguments, **keywords)
        return hidden * (1 + len(hidden) * 1e-3), cache


class Broken(StackedDSpark):
    def absorb(self, *arguments: Any, **keywords: Any) -> Any:
        raise RuntimeError("no such instruction")


@pytest.mark.usefixtures("quick")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fault", "told"), [(Beside, "differ at place"), (Broken, "RuntimeError: no such instruction")]
)
def test_what_fails_drafts_without_kernels(
    stage: Stage, tmp_path: Path, fault: type[StackedDSpark], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    def changed(module: StackedDSpark) -> StackedDSpark:
        module.__class__ = fault
        return module

    drafter = started(stage, stacked_model(stage, changed), tmp_path)
    loaded = drafter.model.loaded
    assert type(loaded.module) is DSpark
    assert not loaded.kernels.stacked
    assert told in loaded.kernels.reason
    assert told in caplog.text
    assert stage.target.listener == drafter.listen


@pytest.mark.usefixtures("quick")
@pytest.mark.timeout(300)
def test_nothing_keeps_the_cache_of_one_that_failed(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners: list[Any] = []
    lay_out = starting.without_kernels
    monkeypatch.setattr(starting, "difference", lambda drafter: "a test")
    monkeypatch.setattr(
        starting, "without_kernels", lambda *given: (listeners.append(stage.target.listener), lay_out(*given))[1]
    )
    started(stage, stacked_model(stage), tmp_path)
    assert listeners == [None]


def one_lane(context: int, tokens: Sequence[int]) -> Any:
    """A drafter with a page for its only stream, whose blocks begin with these tokens, one after another."""
    made = iter(tokens)

    def rehearse(lanes: list[int], position: int, page_table: jax.Array) -> Drafts:
        assert (lanes, int(page_table[0, 0])) == ([0], 1)
        return Drafts(jnp.full((1, 4), next(made)), jnp.zeros((1, 4)))

    return SimpleNamespace(
        memory=MemoryPlan(context, False, 1, 1, 0, 0, 0),
        plan=BlockPlan(4, 1, (BlockBucket(1, 5),), (8, 128)),
        context=context,
        target=SimpleNamespace(page_table=np.zeros((2, BLOCK_KEYS // PAGE_ROWS))),
        model=SimpleNamespace(
            loaded=SimpleNamespace(config=SimpleNamespace(taps=(0,), target_hidden=2), dtype=jnp.float32)
        ),
        step=SimpleNamespace(absorb=lambda cache, told, table: cache),
        cache=None,
        rehearse=rehearse,
        forget=lambda: None,
    )


def test_one_lane_of_one_page_is_proved() -> None:
    assert difference(one_lane(PAGE_ROWS, [7, 7])) == ""
    assert difference(one_lane(PAGE_ROWS, [7, 8])) == "tokens of a block differ at place 0 of 1 blocks"


def test_too_short_a_context_is_told() -> None:
    assert difference(one_lane(5, [])) == "5 positions leave a block of 5 no context to prove it behind"


def test_a_stacked_target_reads_its_drafter_in_stacks(tmp_path: Path) -> None:
    path = dspark_directory(tmp_path / "little")
    plain, found = (
        load_drafter(path, replace(TARGET, kernels=kernels), TOKENIZER, "float32", 4, lambda phase, share: None)
        for kernels in (XLA, BY_STACKS)
    )
    assert (plain.loaded.kernels.stacked, found.loaded.kernels.stacked) == (False, True)
    own, module = (model.loaded.module for model in (plain, found))
    assert isinstance(own, DSpark)
    assert isinstance(module, StackedDSpark)
    assert found.weight_bytes == plain.weight_bytes
    assert found.ids.tolist() == plain.ids.tolist()
    for i, layer in enumerate(own.layers):
        rows = jnp.concatenate([layer.attention.q.weight[...], layer.attention.kv.weight[...]])
        np.testing.assert_array_equal(module.qkv[...][i], rows)
        np.testing.assert_array_equal(module.down[...][i], layer.mlp.down.weight[...])
    np.testing.assert_array_equal(module.attention_norm[...][-1], own.norm.weight[...])
    cache = found.empty_cache(3, 2)
    assert cache.keys.shape == (len(own.layers), 3, own.config.kv_heads, PAGE_ROWS, own.config.head_dim)
