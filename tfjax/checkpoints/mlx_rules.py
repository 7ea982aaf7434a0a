"""Which tensors `tfjax quantize` packs, with how many bits, and where MLX expects them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tfjax.checkpoints.affine import AffineForm
from tfjax.checkpoints.stored_names import LFM2


class Role(Enum):
    """What a tensor is for, as far as quantization minds."""

    PLAIN = "stays as it is"
    ROUTER = "chooses experts"
    EMBEDDING = "embedding or head"
    MATRIX = "any other weight of two axes"


# The first that is found in the name counts. What chooses, scales or counts is small and does harm when it is rounded.
ROLES: tuple[tuple[str, Role], ...] = (
    (r"norm", Role.PLAIN),
    (r"\.conv\.conv\.", Role.PLAIN),
    (r"expert_bias$|\.bias$", Role.PLAIN),
    (r"^(model\.)?confidence_head\.", Role.PLAIN),
    (r"\.feed_forward\.gate\.weight$", Role.ROUTER),
    (r"(^|\.)(embed_tokens|lm_head)\.weight$", Role.EMBEDDING),
    (r"\.weight$", Role.MATRIX),
)
# Published names of a gated feed-forward's matrices, and MLX's.
_MATRICES = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
_EXPERT = re.compile(r"(.+\.feed_forward)\.experts\.(\d+)\.(w[123])\.weight")
_DENSE = re.compile(r"(.+\.feed_forward)\.(w[123])\.(weight|bias)")


@dataclass(frozen=True, slots=True)
class Forms:
    """How the weights of each role are packed; None leaves them as they are."""

    matrix: AffineForm
    router: AffineForm | None
    embedding: AffineForm | None

    def of(self, name: str, shape: tuple[int, ...]) -> AffineForm | None:
        """The form of a tensor by its published name; None for one that is not packed."""
        role = role_of(name, shape)
        forms: Mapping[Role, AffineForm | None] = {
            Role.PLAIN: None,
            Role.ROUTER: self.router,
            Role.EMBEDDING: self.embedding,
            Role.MATRIX: self.matrix,
        }
        return forms[role]


@dataclass(frozen=True, slots=True)
class Place:
    """Where MLX has a tensor.

    Attributes:
        name: in the file.
        entry: of the first axis, where several are stacked.
        turned: the last two axes are swapped.
    """

    name: str
    entry: int | None = None
    turned: bool = False


def role_of(name: str, shape: tuple[int, ...]) -> Role:
    """What a tensor is for, by its published name."""
    if len(shape) != 2:
        return Role.PLAIN
    return next((role for pattern, role in ROLES if re.search(pattern, name)), Role.PLAIN)


def mlx_place(architecture: str, name: str) -> Place:
    """Where MLX has the tensor of a published name; tensors of other architectures than LFM2 keep their names."""
    if architecture not in LFM2:
        return Place(name)
    if name.endswith(".conv.conv.weight"):
        return Place(name, turned=True)
    if expert := _EXPERT.fullmatch(name):
        return Place(f"{expert[1]}.switch_mlp.{_MATRICES[expert[3]]}.weight", int(expert[2]))
    dense = _DENSE.fullmatch(name)
    if dense is not None and architecture == "Lfm2MoeForCausalLM":
        return Place(f"{dense[1]}.{_MATRICES[dense[2]]}.{dense[3]}")
    return Place(name)
