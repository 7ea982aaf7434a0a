"""Which models run by device kernels, asked for on a machine that has none."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from tests.models.published_lfm2 import LFM2_1B, LFM2_24B, LFM2_CODE
from tests.models.tiny import TINY
from tests.models.tiny_lfm2 import EXPERTS
from tfjax.engine import kernel_choice, step
from tfjax.engine.buckets import kernel_plan
from tfjax.engine.kernel_choice import choose_kernels, obstacle
from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.rows_buffer import FIELDS
from tfjax.engine.step import Bucket, State, Step
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.kernels.routes import Route
from tfjax.kernels.specs import SPECS
from tfjax.models import lfm2_moe, llama
from tfjax.models.llama import LlamaConfig

BF16 = jnp.dtype(jnp.bfloat16)


def published(name: str) -> LlamaConfig:
    """Two layers of a published shape."""
    spec = SPECS[name]
    return replace(
        TINY, vocab=spec.vocab, hidden=spec.hidden, inner=spec.inner, heads=spec.heads, kv_heads=spec.kv_heads,
        head_dim=spec.head_dim, tied=name.startswith("SmolLM2"),
    )  # fmt: skip


SMOL, BIG = published("SmolLM2-135M"), published("Llama-3-8B")
BIASED = replace(SMOL, attention_bias=True, mlp_bias=True)


def form_of(family: Any) -> Any:
    assert family.stacked is not None
    return family.stacked


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_choice, "chosen", lambda wanted, device: (Route.PALLAS_GPU, "compute capability 9.0"))


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("config", [SMOL, BIASED], ids=["plain", "biased"])
def test_known_shapes_run_by_the_kernels(config: LlamaConfig) -> None:
    assert choose_kernels("auto", llama.FAMILY, config, BF16) == (Route.PALLAS_GPU, "compute capability 9.0", True)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    ("family", "config", "dtype", "words"),
    [
        (llama.FAMILY, SMOL, jnp.dtype(jnp.float32), "float32"),
        (llama.FAMILY, replace(SMOL, inner=1520), BF16, "1520"),
        (llama.FAMILY, replace(SMOL, vocab=49_160), BF16, "49160, no multiples of 64"),
        (llama.FAMILY, replace(SMOL, heads=195, kv_heads=3), BF16, "65 query heads of 64 a key head"),
        (replace(lfm2_moe.FAMILY, stacked_module=None), None, BF16, "all operators of Lfm2MoeForCausalLM"),
        (lfm2_moe.FAMILY, replace(LFM2_1B, conv_bias=True), BF16, "conv_bias"),
        (lfm2_moe.FAMILY, replace(LFM2_CODE, experts=replace(EXPERTS, inner=96)), BF16, "96"),
    ],
    ids=["float32", "inner size", "vocabulary", "group", "family", "convolution", "experts"],
)
def test_what_kernels_cannot_take_runs_by_the_reference(family: Any, config: Any, dtype: Any, words: str) -> None:
    route, reason, stacked = choose_kernels("auto", family, config, dtype)
    assert (route, stacked) == (Route.REFERENCE, False)
    assert reason.startswith("there are no kernels for ")
    assert words in reason


def test_here_the_reference_runs_and_says_why() -> None:
    found = choose_kernels("auto", llama.FAMILY, SMOL, BF16)
    assert (found.route, found.stacked) == (Route.REFERENCE, False)
    assert jax.default_backend() in found.reason
    assert choose_kernels("reference", llama.FAMILY, SMOL, BF16).reason == "--kernels reference"


def test_the_reference_takes_any_shape() -> None:
    assert obstacle(llama.FAMILY, replace(TINY, heads=15, kv_heads=3), jnp.dtype(jnp.float32), Route.REFERENCE) == ""


FAST = ((SMOL, 8), (BIASED, 512))
CASES = [
    pytest.param(family, config, bucket, marks=() if (config, bucket.rows) in FAST else pytest.mark.slow, id=name)
    for family, config in (
        (llama.FAMILY, SMOL),
        (llama.FAMILY, BIASED),
        (llama.FAMILY, BIG),
        (lfm2_moe.FAMILY, LFM2_1B),
        (lfm2_moe.FAMILY, LFM2_24B),
        (lfm2_moe.FAMILY, LFM2_CODE),
    )
    for bucket in kernel_plan(form_of(family).tile_rows(config)).all
    for form in ("-biased" if config is BIASED else "",)
    for name in (f"{family.architecture[:4]}-{config.hidden}-{config.layers}{form}-{bucket.rows}",)
]


def lowered(family: Any, config: Any, bucket: Bucket) -> str:
    """The text of a step by device kernels."""
    form = form_of(family)
    made: Any = Step(nnx.eval_shape(lambda: form.build(config, BF16, Route.PALLAS_GPU)), (1, 0))
    tables = functools.partial(empty_tables, 3, config.vocab, 256)
    state = jax.eval_shape(lambda: State(form.empty_cache(config, 9, PAGE_ROWS, 3, BF16), tables()))
    int32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
    arguments = (made.parameters, state, int32((bucket.rows,)), int32((len(FIELDS), bucket.rows)), int32((3, 4)))
    program = jax.jit(functools.partial(made.forward, bucket), donate_argnums=1).trace(*arguments)
    text: str = program.lower(lowering_platforms=("cuda",)).as_text()
    return text


@pytest.mark.parametrize(
    ("family", "config"), [(llama.FAMILY, SMOL), (lfm2_moe.FAMILY, LFM2_CODE)], ids=["Llama", "LFM2"]
)
def test_there_is_no_loop_before_the_draws(monkeypatch: pytest.MonkeyPatch, family: Any, config: Any) -> None:
    """Each turn of one is a launch of its own, and small kernels that count."""
    monkeypatch.setattr(step, "draw_as_read", lambda logits, *_, **__: jnp.argmax(logits, -1))
    assert "stablehlo.while" not in lowered(family, config, kernel_plan(8).verify[0])


@pytest.mark.parametrize(("family", "config", "bucket"), CASES)
def test_the_whole_step_lowers_for_cuda(family: Any, config: Any, bucket: Bucket) -> None:
    """Every operator is a kernel: no product is left to XLA, and the cache is written in place."""
    text = lowered(family, config, bucket)
    assert "mosaic_gpu" in text
    assert "stablehlo.dot_general" not in text
    assert text.count("output_operand_alias<") >= 2
