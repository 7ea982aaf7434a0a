"""Contracts of the products of packed weights.

Besides the four gates, the gate of rows holds them to the bits of the dense route, given the same weights expanded.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tfjax.kernels.contract.controls import Control
from tfjax.kernels.contract.norms import VOCAB, Embedding
from tfjax.kernels.contract.problem import BUCKETS, ROWS, SMALL_BUCKETS, SMALL_ROWS, Style, Subject, floats, wide
from tfjax.kernels.contract.products import LAYER, Product
from tfjax.kernels.embed_rows import embed_rows
from tfjax.kernels.gpu.plans import Form, Plan, split_of
from tfjax.kernels.layer_matmul import layer_glu, layer_matmul
from tfjax.kernels.packed import WORD_BITS, PackedWeight, expanded
from tfjax.kernels.specs import SPECS, TINY

MODULE = "tfjax.kernels.gpu.packed_matmul"

BF16 = np.dtype(jnp.bfloat16)


class PackedProduct(Product):
    """Rows by one packed matrix, as parts or gated."""

    def __init__(self, *sizes: Any, bits: int, group: int, scales: Any = jnp.bfloat16, **more: Any):
        self.bits, self.group, self.kind = bits, group, scales
        super().__init__(*sizes, **more)
        self.key = (*self.key, bits, group, jnp.dtype(scales).name)

    def weight(self, shape: tuple[int, ...], style: Style, scale: float) -> PackedWeight:
        return _packed(shape, style, scale, self.bits, self.group, self.kind)

    def matrix(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        return wide(expanded(self.data["weight"].at((LAYER, columns))))


def _packed(
    shape: tuple[int, ...], style: Style, scale: float, bits: int, group: int, kind: Any = jnp.bfloat16
) -> PackedWeight:
    """Random codes, and values about as large as normal numbers times `scale`."""
    *leading, inner = shape
    levels = (1 << bits) - 1
    scales = floats(2, (*leading, inner // group), style, negated=True) * scale * 3.5 / levels
    biases = scales if style is Style.POSITIVE else scales * (-levels / 2)
    words = jax.random.bits(jax.random.key(4), (*leading, inner * bits // WORD_BITS), jnp.uint32)
    if style is Style.CANCEL:
        half = words.shape[-1] // 2
        words = jnp.concatenate([words[..., :half], words[..., :half]], -1)
    return PackedWeight(words, scales.astype(kind), biases.astype(kind), bits, group, BF16)


class PackedEmbedding(Embedding):
    """Tokens by a packed table."""

    def __init__(
        self,
        size: int,
        style: Style,
        *,
        bits: int = 4,
        group: int = 64,
        scales: Any = jnp.bfloat16,
        small: bool = False,
    ):
        super().__init__(size, style, small=small)
        # Nothing is summed here, so that nothing can cancel.
        style = Style.NORMAL if style is Style.CANCEL else style
        self.data: dict[str, Any] = {"table": _packed((VOCAB, size), style, 1.0, bits, group, scales)}


def _problem(
    inner: int, columns: int, style: Style, *, bits: int = 4, group: int = 64, small: bool = False, **more: Any
) -> PackedProduct:
    rows, buckets = (SMALL_ROWS, SMALL_BUCKETS) if small else (ROWS, BUCKETS)
    split = 2 if small else split_of(inner, columns)
    sizes = (inner, columns, split, style)
    return PackedProduct(*sizes, bits=bits, group=group, rows=rows, buckets=buckets, **{"gated": False, **more})


_CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Llama-3-8B", "down", {}),
    ("Llama-3-8B", "qkv", {"bits": 8, "biased": True}),
    ("SmolLM2-135M", "down", {"group": 32, "scales": jnp.float16}),
    ("SmolLM2-135M", "qkv", {"group": 32, "scales": jnp.float16}),
    ("SmolLM2-135M", "head", {"bits": 8, "group": 32, "scales": jnp.float16}),
    ("LFM2.5-1.2B", "qkv", {"group": 128}),
    ("DSpark drafter", "down", {"bits": 8}),
)
"""Sizes and forms of published files: 4-bit models of MLX, Q4_1 and Q8_0 of GGUF, and drafters of 8 bits."""


def _named(spec: str, part: str, more: dict[str, Any]) -> str:
    return f"{spec} {part}, {more.get('bits', 4)}-bit by {more.get('group', 64)}"


_DENSE: dict[str, Any] = {"dense_first": True}

_READS = (
    Control("another layer's codes", "reference", (("words_ref.at[layer]", "words_ref.at[0]"),)),
    Control("another layer's scales", "reference", (("at = (layer, ", "at = (0, "),)),
    Control("biases taken for scales", "reference", (("scales_ref.at[at]", "biases_ref.at[at]"),)),
    Control("groups taken to be twice as long", "reference", (("weight.group, how", "2 * weight.group, how"),)),
    Control("the last tile of the inner axis skipped", "reference", (("grid=(steps,)", "grid=(steps - 1,)"),)),
    Control("stored one plane too far", "bounds", (("out_ref.at[part, ", "out_ref.at[part + 1, "),)),
)

PACKED_MATMUL = Subject(
    name="packed_matmul",
    public=layer_matmul,
    device=MODULE,
    cases={
        _named(spec, part, more): functools.partial(_problem, *SPECS[spec].products[part], **more)
        for spec, part, more in _CASES
    },
    small=functools.partial(_problem, 2 * TINY.hidden, TINY.inner, small=True, biased=True),
    controls=(
        *_READS,
        Control(
            "the first part's groups for all", "reference", (("pl.ds(part * groups, groups)", "pl.ds(0, groups)"),)
        ),
        Control(
            "the walk begins where the row count says",
            "rows",
            (
                ("    width = plan", "    turn = count_ref[0]\n    width = plan"),
                ("part * steps + i)", "part * steps + (i + turn) % steps)"),
            ),
        ),
    ),
    variants=(
        (16, _DENSE),
        (256, _DENSE),
        (16, {"plan": Plan(Form.MMA, 16, 64, 64, 3)}),
        (64, {"plan": Plan(Form.MMA, 64, 64, 64, 3)}),
        (64, {"plan": Plan(Form.WEIGHTS, 64, 64, 64, 4)}),
        (64, {"plan": Plan(Form.ROWS, 64, 64, 64, 4)}),
    ),
)

PACKED_GLU = Subject(
    name="packed_glu",
    public=layer_glu,
    device=MODULE,
    cases={
        f"{name}, {bits}-bit": functools.partial(_problem, SPECS[name].hidden, SPECS[name].inner, gated=True, bits=bits)
        for name, bits in (("Llama-3-8B", 4), ("LFM2.5-1.2B", 4), ("DSpark drafter", 8))
    }
    | {
        "SmolLM2-135M, 4-bit by 32": functools.partial(
            _problem,
            SPECS["SmolLM2-135M"].hidden,
            SPECS["SmolLM2-135M"].inner,
            gated=True,
            group=32,
            scales=jnp.float16,
        )
    },
    small=functools.partial(_problem, TINY.hidden, TINY.inner, gated=True, small=True, group=32),
    controls=(
        *_READS,
        Control("up read from the gate's rows", "reference", (("[column, column + offset]", "[column, column]"),)),
        Control("gate and up swapped", "reference", (("silu_gate(*sums)", "silu_gate(*sums[::-1])"),)),
    ),
    variants=(
        (16, _DENSE),
        (256, _DENSE),
        (16, {"plan": Plan(Form.MMA, 16, 64, 64, 3)}),
        (64, {"plan": Plan(Form.ROWS, 64, 64, 64, 3)}),
    ),
)

PACKED_EMBED = Subject(
    name="embed_packed_rows",
    public=embed_rows,
    device="tfjax.kernels.gpu.embed_rows",
    cases={
        f"{name}, {bits}-bit by {group}": functools.partial(PackedEmbedding, SPECS[name].hidden, bits=bits, group=group)
        for name, bits, group in (("Llama-3-8B", 4, 64), ("SmolLM2-135M", 8, 32), ("LFM2.5-1.2B", 4, 128))
    }
    | {
        "SmolLM2-135M, 8-bit by 32, float16": functools.partial(
            PackedEmbedding, SPECS["SmolLM2-135M"].hidden, bits=8, group=32, scales=jnp.float16
        )
    },
    small=functools.partial(PackedEmbedding, TINY.hidden, small=True),
    controls=(
        Control("the token beside", "reference", (("at = token_ref[row]", "at = token_ref[row] ^ 1"),)),
        Control(
            "biases taken for scales", "reference", (("in (scales_ref, biases_ref)", "in (biases_ref, scales_ref)"),)
        ),
        Control("a neighbour's token", "rows", (("at = token_ref[row]", "at = token_ref[row ^ 1]"),)),
        Control(
            "stored one row too far",
            "bounds",
            (("put(out_ref.at[row], values_of", "put(out_ref.at[row + 1], values_of"),),
        ),
    ),
)
