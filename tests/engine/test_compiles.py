from __future__ import annotations

import random

import jax
import jax.numpy as jnp

from tfjax.engine.compiles import compiles


def test_counts_programs_and_not_calls() -> None:
    odd = random.random()
    program = jax.jit(lambda x: x * odd + 1)
    before = compiles()
    x = jnp.ones(3)
    between = compiles()
    program(x)
    assert compiles() == between + 1
    program(x)
    assert compiles() == between + 1
    assert between >= before
