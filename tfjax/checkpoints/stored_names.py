"""From the names and shapes that a directory stores to those of Hugging Face's published checkpoints.

MLX and newer exports name and stack LFM2's tensors otherwise. Nothing is read here: a `Piece` says where a tensor lies.

Sources: the published safetensors of LFM2 and LFM2-MoE; mlx-lm's renaming of both; transformers' packed experts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

type Shape = tuple[int, ...]

LLAMA = frozenset({"LlamaForCausalLM"})
LFM2 = frozenset({"Lfm2ForCausalLM", "Lfm2MoeForCausalLM"})

_PREFIXES = ("language_model.model.", "model.language_model.model.", "model.language_model.", "language_model.")
_HEADLESS = ("layers.", "embed_tokens.", "embedding_norm.", "norm.")
# MLX's names of the three matrices of a gated feed-forward, and the published ones.
_MATRICES = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2", "w1": "w1", "w3": "w3", "w2": "w2"}
_DENSE = re.compile(r"(.+\.feed_forward)\.(gate_proj|up_proj|down_proj)\.(\w+)")
_STACKED = re.compile(r"(.+\.feed_forward)\.(?:experts|switch_mlp)\.(gate_proj|up_proj|down_proj|w1|w2|w3)(\.weight)?")
_JOINED = re.compile(r"(.+\.feed_forward)\.(?:experts|switch_mlp)\.gate_up_proj(\.weight)?")
_EXPERT = re.compile(r"(.+\.feed_forward\.experts\.\d+)\.(gate_proj|up_proj|down_proj)\.(\w+)")
_CONV = re.compile(r".+\.conv\.conv\.weight")


class Stored(NamedTuple):
    """A tensor of the file."""

    name: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a tensor lies.

    Attributes:
        stored: name in the file.
        shape: of the piece, as it is read.
        place: index on the first axis; None for the whole of it.
        rows: range on the axis that follows, or None.
        turned: the last two axes are swapped in the file.
    """

    stored: str
    shape: Shape
    place: int | None = None
    rows: tuple[int, int] | None = None
    turned: bool = False

    @property
    def at(self) -> tuple[int | slice, ...]:
        """What to select on the leading axes."""
        place = () if self.place is None else (self.place,)
        return place if self.rows is None else (*place, slice(*self.rows))


def pieces(architecture: str, stored: Mapping[str, Shape]) -> list[tuple[str, Piece]]:
    """Published name and piece, for every tensor of the file; names of other architectures stay as they are."""
    if architecture in LFM2:
        named = (_lfm2(Stored(name, shape), published_prefix(name)) for name, shape in stored.items())
        return [found for each in named for found in each]
    rename = published_prefix if architecture in LLAMA else str
    return [(rename(name), Piece(name, shape)) for name, shape in stored.items()]


def published_prefix(name: str) -> str:
    """`name` under `model.`, without the prefix that exports of larger models put before it."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    return f"model.{name}" if name.startswith(_HEADLESS) else name


def canonical_module(module: str) -> str:
    """One spelling of a module path for all layouts; the number of an expert stays."""
    module = published_prefix(f"{module}.")[:-1].replace(".switch_mlp.", ".experts.")
    base, _, last = module.rpartition(".")
    return f"{base}.{_MATRICES.get(last, last)}" if ".feed_forward" in base else module


def module_names(module: str) -> tuple[str, ...]:
    """Spellings under which a module of the file may be listed, the closest first: its own, then all experts'."""
    own = canonical_module(module)
    return own, re.sub(r"\.experts\.\d+\.", ".experts.", own)


def _lfm2(stored: Stored, name: str) -> Iterator[tuple[str, Piece]]:
    if (joined := _JOINED.fullmatch(name)) and len(stored.shape) == 3:
        yield from _joined_experts(stored, joined[1])
    elif (stacked := _STACKED.fullmatch(name)) and len(stored.shape) == 3:
        yield from _stacked_experts(stored, stacked[1], _MATRICES[stacked[2]])
    elif expert := _EXPERT.fullmatch(name):
        yield f"{expert[1]}.{_MATRICES[expert[2]]}.{expert[3]}", Piece(*stored)
    elif dense := _DENSE.fullmatch(name):
        yield f"{dense[1]}.{_MATRICES[dense[2]]}.{dense[3]}", Piece(*stored)
    elif _CONV.fullmatch(name):
        yield name, _conv_taps(stored)
    else:
        yield name, Piece(*stored)


def _stacked_experts(stored: Stored, feed_forward: str, matrix: str) -> Iterator[tuple[str, Piece]]:
    experts, *shape = stored.shape
    for place in range(experts):
        yield f"{feed_forward}.experts.{place}.{matrix}.weight", Piece(stored.name, tuple(shape), place)


def _joined_experts(stored: Stored, feed_forward: str) -> Iterator[tuple[str, Piece]]:
    """[E, 2I, H] with the gate's rows first."""
    experts, rows, columns = stored.shape
    half = rows // 2
    for place in range(experts):
        for matrix, span in (("w1", (0, half)), ("w3", (half, rows))):
            shape = (span[1] - span[0], columns)
            yield f"{feed_forward}.experts.{place}.{matrix}.weight", Piece(stored.name, shape, place, span)


def _conv_taps(stored: Stored) -> Piece:
    """Published [H, 1, taps]; MLX stores [H, taps, 1]."""
    if len(stored.shape) != 3 or stored.shape[1] == 1:
        return Piece(*stored)
    channels, taps, one = stored.shape
    return Piece(stored.name, (channels, one, taps), turned=True)
