"""The whole step lowers for Apple's plugins and for CUDA by operations that they have. Neither need be installed."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from tests.models.tiny import TINY, random_llama
from tests.models.tiny_lfm2 import MOE, random_lfm2
from tfjax.engine.memory import MemoryPlan
from tfjax.engine.rows_buffer import FIELDS
from tfjax.engine.step import Bucket, Step
from tfjax.engine.target import empty_state
from tfjax.engine.weights import LoadedModel
from tfjax.models import lfm2_moe, llama

PLATFORMS = ("METAL", "mps", "mtl", "metal", "cuda")
"""Names under which Apple's plugins register (jax-metal, jax-mps, jax-graft, metaljax), and CUDA's."""

FORBIDDEN = {
    "a custom call": r"custom_call|tpu_custom_call",
    "float64": r"\bf64\b|xf64>",
    "complex numbers": r"complex<",
    "a host callback": r"callback|host_transfer|send\b|recv\b|infeed|outfeed",
    "a matrix decomposition": r"stablehlo\.cholesky|stablehlo\.triangular_solve|chlo\.lu",
    "numbers of 4 or 8 bits": r"x[su]?i4>|f8E|f4E|\bi4\b",
}

MEMORY = MemoryPlan(256, False, 2, 8, cache_bytes=0, weight_bytes=0, budget_bytes=0)


def lowered(function: Callable[..., Any], platform: str, *arguments: Any) -> str:
    """The program's text without source locations, whose names could look like operations."""
    text = str(jax.export.export(jax.jit(function), platforms=[platform])(*arguments).mlir_module())
    return "\n".join(re.sub(r" loc\(.*\)", "", line) for line in text.splitlines() if not line.startswith("#loc"))


def faults(text: str) -> set[str]:
    return {name for name, pattern in FORBIDDEN.items() if re.search(pattern, text)}


@functools.cache
def step_and_arguments(name: str, dtype: str) -> tuple[Step, Bucket, tuple[Any, ...]]:
    kind = jnp.dtype(dtype)
    model: Any = random_llama(TINY, kind) if name == "llama" else random_lfm2(MOE, kind)
    family: Any = llama.FAMILY if name == "llama" else lfm2_moe.FAMILY
    step, bucket = Step(model), Bucket(8, 8, 4)
    state = jax.eval_shape(lambda: empty_state(LoadedModel(family, model.config, model, kind), MEMORY))
    int32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
    table = int32((MEMORY.lanes + 1, MEMORY.pages_per_lane))
    return step, bucket, (step.parameters, state, int32((bucket.rows,)), int32((len(FIELDS), bucket.rows)), table)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("platform", "name"), [*((platform, "llama") for platform in PLATFORMS), ("METAL", "lfm2"), ("cuda", "lfm2")]
)
def test_the_whole_step_lowers(platform: str, name: str, dtype: str) -> None:
    step, bucket, arguments = step_and_arguments(name, dtype)
    text = lowered(functools.partial(step.forward, bucket), platform, *arguments)
    assert faults(text) == set()
    operations = set(re.findall(r"(?:stablehlo|chlo)\.[a-z_0-9]+", text))
    assert {"stablehlo.dot_general", "stablehlo.while", "stablehlo.scatter"} <= operations
    dialects = set(re.findall(r"^ *(?:%\S+ = )?\"?([a-z_]+)\.", text, re.MULTILINE))
    assert dialects <= {"stablehlo", "chlo", "func"}


def double(x: Any) -> Any:
    return jax.lax.convert_element_type(x, jnp.float64) * 2


BAD: dict[str, Callable[[Any], Any]] = {
    "a custom call": lambda x: jnp.linalg.qr(x)[0],
    "complex numbers": jnp.fft.fft,
}


@pytest.mark.parametrize("name", BAD)
def test_what_apple_lacks_is_found(name: str) -> None:
    text = lowered(BAD[name], "cpu", jax.ShapeDtypeStruct((3, 3), jnp.float32))
    assert name in faults(text)


def test_float64_is_found() -> None:
    with jax.enable_x64(True):
        text = lowered(double, "cpu", jax.ShapeDtypeStruct((3, 3), jnp.float32))
    assert faults(text) == {"float64"}


def test_a_host_callback_does_not_lower() -> None:
    x = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    with pytest.raises(NotImplementedError, match="host_callbacks"):
        lowered(lambda x: io_callback(np.asarray, jax.ShapeDtypeStruct((3, 3), jnp.float32), x), "cpu", x)
