"""The one place where queries and keys are normed and rotated, in the order that a model was trained with."""

from __future__ import annotations

import enum
from collections.abc import Callable

import jax

from tfjax.kernels.rope import rotate


class QKNorm(enum.Enum):
    """Whether each head of q and k is normed, and on which side of the rotation."""

    NONE = "none"
    BEFORE_ROPE = "before_rope"
    AFTER_ROPE = "after_rope"


def prepare_heads(
    x: jax.Array,
    norm: Callable[[jax.Array], jax.Array] | None,
    position: jax.Array,
    inverse_frequency: jax.Array,
    *,
    order: QKNorm,
    interleaved: bool,
) -> jax.Array:
    """Norm and rotate heads as `order` says. `norm` scales over the head's axis; NONE leaves it out.

    Shapes: x [R, heads, H], position int32 [R], inverse_frequency float32 [H/2] -> [R, heads, H].

    Raises:
        ValueError: an order that norms, without a norm.
    """
    if order is QKNorm.NONE:
        return rotate(x, position, inverse_frequency, interleaved=interleaved)
    if norm is None:
        raise ValueError(f"the order {order.value} needs a norm of the heads; without one give {QKNorm.NONE.value}")
    if order is QKNorm.BEFORE_ROPE:
        return rotate(norm(x), position, inverse_frequency, interleaved=interleaved)
    return norm(rotate(x, position, inverse_frequency, interleaved=interleaved))
