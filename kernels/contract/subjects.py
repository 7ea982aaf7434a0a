"""All kernels under contract."""

from __future__ import annotations

from tfjax.kernels.contract.attention import ATTENTION
from tfjax.kernels.contract.choice import CHOICE, EXPERT_SUM
from tfjax.kernels.contract.conv import CONV
from tfjax.kernels.contract.draw import DRAW
from tfjax.kernels.contract.experts import GROUPED, GROUPED_GLU
from tfjax.kernels.contract.heads import ROPE
from tfjax.kernels.contract.norms import EMBED, NORM
from tfjax.kernels.contract.packed import PACKED_EMBED, PACKED_GLU, PACKED_MATMUL
from tfjax.kernels.contract.products import GLU, MATMUL
from tfjax.kernels.contract.tall import TALL_GLU, TALL_MATMUL

SUBJECTS = {
    subject.name: subject
    for subject in (
        *(MATMUL, GLU, TALL_MATMUL, TALL_GLU, PACKED_MATMUL, PACKED_GLU, PACKED_EMBED),
        *(NORM, EMBED, ROPE, ATTENTION, CHOICE, GROUPED, GROUPED_GLU, EXPERT_SUM, CONV, DRAW),
    )
}
