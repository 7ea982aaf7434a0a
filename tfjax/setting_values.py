"""Words and numbers that settings take, where other code has to know them."""

from __future__ import annotations

# What any command that runs a model takes; the other settings are the server's own.
ENGINE_SETTINGS = (
    "model",
    "dtype",
    "weights",
    "kernels",
    "context",
    "no_drafts",
    "draft_tokens",
    "drafter",
    "drafter_depth",
    "drafter_bits",
    "drafter_qk_norm",
    "drafter_policy",
    "held_drafts",
    "offline",
)

DRAFTER_AUTO, DRAFTER_NONE, DRAFTER_COPY, DRAFTER_TABLE = "auto", "none", "copy", "table"
"""Values of --drafter that are no path."""

POLICY_AUTO, POLICY_ALWAYS, POLICY_NEVER = "auto", "always", "never"
"""Values of --drafter-policy."""

HELD_AUTO, HELD_ON, HELD_OFF = "auto", "on", "off"
"""Values of --held-drafts."""

QK_NORM_CONFIG = "config"
"""Value of --drafter-qk-norm that leaves the order to the drafter's config."""

DRAFTER_BITS = (16, 8)

WEIGHTS_AUTO, WEIGHTS_PACKED, WEIGHTS_DENSE = "auto", "packed", "dense"
"""Values of --weights."""

KERNELS_AUTO, KERNELS_REFERENCE = "auto", "reference"
"""Values of --kernels."""

DTYPES = {
    "auto": "auto",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "bf16": "bfloat16",
    "f32": "float32",
    "float": "float32",
}
"""Spellings of --dtype."""


def words(*names: str) -> dict[str, str]:
    """Words that a setting takes as they are."""
    return {name: name for name in names}


def drafting_trouble(no_drafts: bool, drafter: str, drafter_bits: int) -> str | None:
    """What is wrong with settings of drafters; None where nothing is."""
    if no_drafts and drafter not in (DRAFTER_AUTO, DRAFTER_NONE):
        return f"--drafter: {drafter!r} cannot draft with --no-drafts, which turns all drafts off; leave one out"
    if drafter_bits not in DRAFTER_BITS:
        return (
            f"--drafter-bits: {drafter_bits} is neither 16 nor 8; fewer bits land fewer drafts and save no time, as "
            "the drafter's part of a round is small"
        )
    return None
