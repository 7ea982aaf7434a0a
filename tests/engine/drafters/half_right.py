"""Drafts on the device of which the test decides how many land: the true continuation, spoiled at some places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np

from tfjax.engine.drafters.block_plan import BlockBucket
from tfjax.engine.drafters.dspark import DSparkDrafter
from tfjax.engine.rows_buffer import FIELDS, PLACE
from tfjax.engine.unread import asked, waiting


@contextmanager
def half_right(drafter: DSparkDrafter, texts: Mapping[int, Sequence[int]], wrong_every: int) -> Iterator[None]:
    """Let holds give tokens of these texts, by the seed of the asking stream, with about one in `wrong_every` changed.

    The drafter's own programs run all the same, and what its caches hold is theirs.
    """
    longest = max(map(len, texts.values()))
    known = np.zeros((max(texts) + 1, longest + drafter.depth + 2), np.int32)
    for seed, text in texts.items():
        known[seed, : len(text)] = text
    truth = jnp.asarray(known)
    programs = drafter.step._compiled

    def given(program: Any) -> Any:
        def hold(parameters: Any, cache: Any, tables: Any, unread: Any, told: Any, page_table: Any) -> Any:
            drafts, _, cache = program(parameters, cache, tables, unread, told, page_table)
            told, _ = asked(unread, jnp.asarray(told)[: len(FIELDS)], jnp.zeros(told.shape[1], jnp.int32))
            seed, position = told[PLACE["seed_low"]], told[PLACE["position"]]
            place = position[:, None] + 1 + jnp.arange(drafts.token.shape[1])
            right = truth[seed[:, None], jnp.minimum(place, truth.shape[1] - 1)]
            wrong = (place * 31 + seed[:, None] * 17) % wrong_every == 0
            token = jnp.where(wrong, (right + 1) % 50, right)
            streams = len(seed)
            drafts = drafts._replace(token=drafts.token.at[:streams].set(token[:streams]))
            return drafts, waiting(unread, told[PLACE["lane"]], token[:streams]), cache

        return hold

    drafter.step._compiled = {
        key: given(program) if isinstance(key, BlockBucket) else program for key, program in programs.items()
    }
    try:
        yield
    finally:
        drafter.step._compiled = programs
