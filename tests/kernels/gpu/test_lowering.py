"""Every device kernel lowers for CUDA on a machine without a GPU, for published sizes and for the planted faults."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tfjax.kernels.choose_experts import ChoiceRule
from tfjax.kernels.contract.controls import faulty
from tfjax.kernels.contract.problem import Problem, Style
from tfjax.kernels.contract.running import candidate_of
from tfjax.kernels.contract.subjects import SUBJECTS
from tfjax.kernels.conv_step import ConvPlaces, ConvState
from tfjax.kernels.gpu.choose_experts import choose_experts
from tfjax.kernels.gpu.conv_step import conv_step
from tfjax.kernels.gpu.embed_rows import embed_rows
from tfjax.kernels.gpu.expert_sum import expert_sum
from tfjax.kernels.gpu.grouped_matmul import grouped_glu, grouped_matmul
from tfjax.kernels.gpu.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.gpu.plans import Form, Plan, split_of
from tfjax.kernels.gpu.rope_write import rope_write
from tfjax.kernels.gpu.sum_norm import sum_norm
from tfjax.kernels.gpu.window_attention import window_attention
from tfjax.kernels.grouped_matmul import WindowTiles, gathered, tiles_of
from tfjax.kernels.paged_attention import PAGE_ROWS, Tiles
from tfjax.kernels.rope_write import HeadNorm, Heads, Places, Pools, Turns
from tfjax.kernels.routes import Route, Unsupported
from tfjax.kernels.short_conv import RING
from tfjax.kernels.specs import SPECS, Spec
from tfjax.kernels.window_attention import window

SCALAR = jax.ShapeDtypeStruct((), jnp.int32)
ONE = jnp.int32(1)


def lower(function: Callable[..., Any], *arguments: Any) -> str:
    """The program's text."""
    text: str = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    assert "mosaic_gpu" in text
    return text


def bf16(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def int32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


FAST = ("Llama-3-8B", "SmolLM2-135M")
"""Models whose sizes are lowered in every run; the others' take a while."""

MODELS = [pytest.param(spec, marks=() if name in FAST else pytest.mark.slow, id=name) for name, spec in SPECS.items()]

PRODUCTS = {size for spec in SPECS.values() for size in spec.products.values()}


@pytest.mark.parametrize(
    ("inner", "columns"),
    [
        pytest.param(*size, marks=() if size in ((14336, 4096), (576, 960)) else pytest.mark.slow)
        for size in sorted(PRODUCTS)
    ],
)
def test_products(inner: int, columns: int) -> None:
    multiply = functools.partial(layer_matmul, split=split_of(inner, columns))
    for rows in (16, 200):
        lower(multiply, bf16(rows, inner), bf16(2, columns, inner), SCALAR, SCALAR)


FORMS = [Plan(Form.MMA, rows, 64, 64, 4) for rows in (16, 32, 64)] + [Plan(Form.ROWS, 64, 128, 64, 5)]


@pytest.mark.parametrize("plan", FORMS, ids=lambda plan: f"{plan.form}-{plan.rows}")
@pytest.mark.parametrize("gated", [False, True])
def test_forms(plan: Plan, gated: bool) -> None:
    columns = 256
    weight = bf16(2, columns * (2 if gated else 1), 512)
    multiply: Callable[..., Any] = layer_glu if gated else functools.partial(layer_matmul, split=2)
    lower(functools.partial(multiply, plan=plan), bf16(64, 512), weight, SCALAR, SCALAR)


@pytest.mark.parametrize("spec", MODELS)
def test_gated_products(spec: Spec) -> None:
    for rows in (16, 128):
        lower(layer_glu, bf16(rows, spec.hidden), bf16(2, 2 * spec.inner, spec.hidden), SCALAR, SCALAR)


@pytest.mark.parametrize("spec", MODELS)
def test_rows_between_products(spec: Spec) -> None:
    x = bf16(5, spec.hidden)
    for split in (0, 4):
        parts = jax.ShapeDtypeStruct((split, 5, spec.hidden), jnp.float32)
        lower(functools.partial(sum_norm, eps=1e-5), parts, x, bf16(2, spec.hidden), SCALAR, SCALAR)
    lower(embed_rows, bf16(100, spec.hidden), int32(5), SCALAR)


def heads_of(spec: Spec) -> Heads:
    return Heads(spec.heads, spec.kv_heads, spec.head_dim, spec.norm_after)


@pytest.mark.parametrize("spec", MODELS)
def test_rotation_and_page_write(spec: Spec) -> None:
    rows, half = 5, spec.head_dim // 2
    pool = bf16(9, spec.kv_heads, PAGE_ROWS, spec.head_dim)
    norm = HeadNorm(bf16(2, spec.head_dim), bf16(2, spec.head_dim)) if spec.normed else None
    text = lower(
        lambda *arguments: rope_write(*arguments[:-1], heads=heads_of(spec), norm=arguments[-1], spare=3),
        jax.ShapeDtypeStruct((2, rows, spec.qkv), jnp.float32),
        Turns(*[jax.ShapeDtypeStruct((rows, half), jnp.float32)] * 2),
        Places(int32(rows), int32(rows), SCALAR),
        Pools(pool, pool),
        SCALAR,
        SCALAR,
        norm,
    )
    assert text.count("output_operand_alias<") == 2, "keys and values have to be written in place"


@pytest.mark.parametrize("spec", MODELS)
def test_attention(spec: Spec) -> None:
    pages = 2048
    group = spec.heads // spec.kv_heads
    pool = bf16(9, spec.kv_heads, PAGE_ROWS, spec.head_dim)

    def attend(q: Any, pools: Pools, position: Any, tiles: Tiles, table: Any) -> Any:
        return window_attention(q, pools, window(position, tiles, table, tile_rows=8, group=group), jnp.int32(0))

    tiles = Tiles(SCALAR, int32(16), int32(16), int32(16))
    lower(attend, bf16(spec.kv_heads, 16, group, spec.head_dim), Pools(pool, pool), int32(16), tiles, int32(3, pages))


@pytest.mark.parametrize("spec", [SPECS["LFM2.5-24B-A2B"], SPECS["lfm2-moe-code"]], ids=lambda spec: spec.name)
@pytest.mark.parametrize("rows", [8, 64, 128])
def test_experts(spec: Spec, rows: int) -> None:
    rule = ChoiceRule(spec.experts, spec.picked, normalised=True, scale=1.0, eps=1e-6)

    def experts(x: Any, parts: Any, bias: Any, count: Any, first: Any, gate_up: Any, down: Any, norm: Any) -> Any:
        choice, factor = choose_experts(parts, bias, ONE, count, rule=rule)
        tiles = tiles_of(choice, count, experts=spec.experts, picked=spec.picked)
        inner = grouped_glu(gathered(x, tiles), gate_up, first, tiles)
        out = grouped_matmul(inner, down, first, tiles)
        return expert_sum(out, tiles, factor, x, norm, ONE, count, picked=spec.picked, eps=1e-5)

    stack = 2 * spec.experts
    gate_up, down = (
        bf16(stack, 2 * spec.expert_inner, spec.hidden),
        bf16(stack, spec.hidden, spec.expert_inner),
    )
    parts, bias = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, rows, 64), (2, 64)))
    norm = bf16(3, spec.hidden)
    text = lower(experts, bf16(rows, spec.hidden), parts, bias, SCALAR, SCALAR, gate_up, down, norm)
    assert text.count("custom_call @mosaic_gpu") == 4
    assert "stablehlo.sort" not in text, "a sort is many kernels"
    assert ("stablehlo.reduce" in text) == (rows > 64), "a narrow window needs no layout"


def test_a_window_of_odd_rows_is_refused() -> None:
    tiles = WindowTiles(jnp.zeros((5, 2), jnp.int32), jnp.int32(5), 4)
    x, weight = jnp.zeros((5, 64), jnp.bfloat16), jnp.zeros((4, 64, 64), jnp.bfloat16)
    with pytest.raises(Unsupported, match="5 rows of an expert"):
        grouped_matmul(x, weight, jnp.int32(0), tiles)


@pytest.mark.parametrize("spec", [spec for spec in SPECS.values() if spec.taps], ids=lambda spec: spec.name)
@pytest.mark.parametrize(("rows", "starts"), [(16, 1), (200, 2)])
def test_short_convolution(spec: Spec, rows: int, starts: int) -> None:
    """A window that may write where inputs before it stand reads first."""
    state = ConvState(bf16(5, 4, RING, spec.hidden), bf16(5, 30, spec.taps - 1, spec.hidden))
    text = lower(
        conv_step,
        jax.ShapeDtypeStruct((2, rows, 3 * spec.hidden), jnp.float32),
        bf16(5, spec.taps, spec.hidden),
        state,
        ConvPlaces(int32(rows), int32(rows), int32(4, 8)),
        SCALAR,
        SCALAR,
    )
    assert text.count("custom_call @mosaic_gpu") == starts
    assert text.count("output_operand_alias<") == 2, "ring and tails have to be written in place"


def test_numbers_are_operands_and_not_joined() -> None:
    """Every array that is joined for a kernel is a kernel of its own, once a layer."""
    spec = SPECS["SmolLM2-135M"]
    parts = jax.ShapeDtypeStruct((4, 8, spec.hidden), jnp.float32)
    norm = functools.partial(sum_norm, eps=1e-5)
    texts = [
        lower(norm, parts, bf16(8, spec.hidden), bf16(2, spec.hidden), SCALAR, SCALAR),
        lower(
            functools.partial(layer_matmul, split=1),
            bf16(8, spec.hidden),
            bf16(2, spec.qkv, spec.hidden),
            SCALAR,
            SCALAR,
        ),
    ]
    assert not any("stablehlo.concatenate" in text for text in texts)


def small(name: str) -> tuple[Problem, Any]:
    problem = SUBJECTS[name].small(Style.NORMAL)
    return problem, problem.arrange(range(problem.rows), problem.buckets[-1], problem.places[-1])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "embed_rows" else pytest.mark.slow) for name in SUBJECTS]
)
def test_guarded_starts(name: str) -> None:
    problem, arranged = small(name)
    candidate = candidate_of(SUBJECTS[name], Route.PALLAS_GPU, interpret=False)
    assert candidate.guarded is not None
    lower(functools.partial(problem.step, candidate.guarded), problem.data, arranged)


CONTROLS = [(name, control) for name, subject in SUBJECTS.items() for control in subject.controls]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "control"), CONTROLS, ids=lambda x: getattr(x, "name", x))
def test_planted_faults(name: str, control: Any) -> None:
    """A fault that does not lower would be missed on the device for the wrong reason."""
    problem, arranged = small(name)
    module = faulty(SUBJECTS[name].device, control)
    candidate = candidate_of(SUBJECTS[name], Route.PALLAS_GPU, interpret=False, module=module)
    call = candidate.guarded if control.gate == "bounds" else candidate.call
    assert call is not None
    lower(functools.partial(problem.step, call), problem.data, arranged)


def test_too_much_shared_memory_is_seen_here() -> None:
    plan = Plan(Form.WEIGHTS, 16, 256, 128, 6)
    with pytest.raises(ValueError, match="shared memory"):
        lower(functools.partial(layer_matmul, split=1, plan=plan), bf16(16, 4096), bf16(1, 512, 4096), SCALAR, SCALAR)


def test_what_does_not_fit_is_refused_with_the_remedy() -> None:
    refused: list[Callable[[], Any]] = [
        lambda: lower(functools.partial(layer_matmul, split=1), bf16(16, 100), bf16(1, 64, 100), SCALAR, SCALAR),
        lambda: lower(functools.partial(layer_matmul, split=3), bf16(16, 256), bf16(1, 64, 256), SCALAR, SCALAR),
        lambda: lower(functools.partial(layer_matmul, split=2), bf16(16, 128), bf16(1, 64, 128), SCALAR, SCALAR),
        lambda: lower(embed_rows, bf16(10, 100), int32(4), SCALAR),
        lambda: lower(
            functools.partial(layer_matmul, split=1),
            jax.ShapeDtypeStruct((16, 64), jnp.float32),
            jax.ShapeDtypeStruct((1, 64, 64), jnp.float32),
            SCALAR,
            SCALAR,
        ),
    ]
    for attempt in refused:
        with pytest.raises(Unsupported, match=r"reference route|bfloat16"):
            attempt()
