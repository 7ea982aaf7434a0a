"""How often two draws that share their Gumbel noise agree: the chance that a drawn draft is kept."""

from __future__ import annotations

import jax
import jax.numpy as jnp

COUPLED = 64
"""Tokens that are weighed one by one; the others count together."""
GROUPS = 256
"""Of each only the likeliest token is a candidate, so that no long row is sorted."""
LEAST = 2.0**-23
"""Mass that float32 tells from none beside 1."""


def log_kept(log_p: jax.Array, log_q: jax.Array, likely: jax.Array) -> jax.Array:
    """Logarithm of the chance that argmax(log p + g) is argmax(log q + g), g being one Gumbel noise for both.

    Token i wins both where an exponential clock E_i rings before each E_j / max(p_j / p_i, q_j / q_i); so the chance is
    sum_i 1 / sum_j max(p_j / p_i, q_j / q_i). The likely tokens are weighed so, the mass of all others as one token on
    which nothing agrees. Where these are none, the chance is exact.

    Source: Maddison, Tarlow and Minka, "A* sampling", exponential races; Daliri, Musco and Suresh, "Coupling without
    communication and drafter-invariant speculative decoding", for the bounds of its sum.

    Shapes: log_p, log_q float32 [..., C], whose sums of exponentials are at most 1; likely int32 [..., k], columns that
    are all different -> [...].
    """
    p, q = (_with_rest(jnp.take_along_axis(log, likely, -1)) for log in (log_p, log_q))
    ahead = jnp.maximum(p[..., None, :] - p[..., :-1, None], q[..., None, :] - q[..., :-1, None])
    return jax.nn.logsumexp(-jax.nn.logsumexp(ahead, -1), -1)


def likely_columns(logits: jax.Array, most: int = COUPLED) -> jax.Array:
    """Columns of likely tokens. Shapes: [..., C] -> int32 [..., min(most, C)]."""
    columns = logits.shape[-1]
    if columns <= max(GROUPS, most):
        return jax.lax.top_k(logits, min(most, columns))[1]
    filled = [(0, 0)] * (logits.ndim - 1) + [(0, -columns % GROUPS)]
    groups = jnp.pad(logits, filled, constant_values=-jnp.inf).reshape(*logits.shape[:-1], -1, GROUPS)
    row = jnp.argmax(groups, -2)
    best = jax.lax.top_k(jnp.max(groups, -2), most)[1]
    return jnp.take_along_axis(row, best, -1) * GROUPS + best


def _with_rest(log: jax.Array) -> jax.Array:
    """One more column, what the others leave. Shapes: [..., k] -> [..., k + 1]."""
    left = jnp.maximum(1 - jnp.sum(jnp.exp(log), -1, keepdims=True), LEAST)
    return jnp.concatenate([log, jnp.log(left)], -1)
