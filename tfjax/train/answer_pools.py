"""Rows of a device loop and the prompts that they answer: who waits, who is under way, who has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from tfjax.train.dense_target import DenseTarget
from tfjax.train.llama_sample import Answering, Asked, Llama, ask, go_on, llama_of, nothing_asked
from tfjax.train.shards import WrittenReply
from tfjax.train.small_dense import Shape

STEPS = 32
"""Of one dispatch. A row that ends within it idles until it is over."""
GROUP = 64
FULL = 0.9
"""Share of its rows that a pool waits for before it goes on."""
PARTS = ((4, 0.7), (1, 0.3))
"""Of pools: what their prompts' room is divided by, and their share of all rows. Most prompts are short, and the
attention of a step reads the cache to its end."""


class Sizes(Protocol):
    """What decides the pools' sizes."""

    @property
    def context(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def parallel(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to answer once.

    Attributes:
        index: number of the reply.
        kind: what sort of prompt it is.
        temperature: 0 for greedy.
        seed: of the draws, below 2**32.
    """

    index: int
    kind: str
    temperature: float
    seed: int
    prompt: tuple[int, ...]


class Pool:
    """Some rows of one size.

    Attributes:
        room: most tokens of a prompt.
        waiting: prompts without a row.
    """

    def __init__(self, llama: Llama, shape: Shape, ends: Sequence[int], *, rows: int, room: int, most_new: int) -> None:
        self.room = room
        self.waiting: deque[Request] = deque()
        self._llama, self._shape, self._ends = llama, shape, tuple(ends)
        self._open: dict[int, Request] = {}
        self._rows = rows
        self._drawn = 0
        self._state: Answering = nothing_asked(llama, shape, rows, room, most_new)

    @property
    def lacks(self) -> bool:
        """Whether rows are free that nobody waits for."""
        return len(self._open) + len(self.waiting) < self._rows

    @property
    def is_crowded(self) -> bool:
        """Whether as many wait as there are rows."""
        return len(self.waiting) >= self._rows

    @property
    def open_tokens(self) -> int:
        """Tokens drawn for replies that have not ended."""
        return self._drawn

    def is_due(self, ending: bool) -> bool:
        """Whether it is to go on: with enough rows, or with the last ones."""
        taken = len(self._open) + len(self.waiting)
        return bool(self._open) if ending else taken >= FULL * self._rows

    def compile(self) -> None:
        """Run both programs once, for nobody."""
        self._state = ask(self._llama, self._state, self._group([]), self._shape)
        self.launch()
        jax.block_until_ready(self._state)

    def launch(self) -> None:
        """Put who waits into free rows and start the next tokens, without waiting for them."""
        free = [row for row in range(self._rows) if row not in self._open]
        taken = [(row, self.waiting.popleft()) for row in free[: len(self.waiting)]]
        self._open |= dict(taken)
        for first in range(0, len(taken), GROUP):
            self._state = ask(self._llama, self._state, self._group(taken[first : first + GROUP]), self._shape)
        self._state = go_on(self._llama, self._state, self._shape, STEPS, self._ends)

    def collect(self) -> list[WrittenReply]:
        """Wait for those tokens. Returns the replies that have ended."""
        state = self._state
        drawn, count, alive = (np.asarray(part) for part in jax.device_get((state.drawn, state.replied, state.alive)))
        found = []
        for row in [row for row in self._open if not alive[row]]:
            request = self._open.pop(row)
            reply = tuple(drawn[row, : count[row]].tolist())
            found.append(WrittenReply(request.index, request.kind, request.temperature, request.prompt, reply))
        self._drawn = int(count[list(self._open)].sum())
        return found

    def _group(self, taken: Sequence[tuple[int, Request]]) -> Asked:
        """Always as many as a group has, so that one program serves all; the rest has no row."""
        prompt = np.zeros((GROUP, self.room), np.int32)
        row = np.full(GROUP, self._rows, np.int32)
        length, temperature, seed = np.ones(GROUP, np.int32), np.zeros(GROUP, np.float32), np.zeros(GROUP, np.uint32)
        for place, (number, request) in enumerate(taken):
            row[place], length[place] = number, len(request.prompt)
            prompt[place, : length[place]] = request.prompt
            temperature[place], seed[place] = request.temperature, request.seed
        return Asked(*map(jnp.asarray, (row, prompt, length, temperature, seed)))


def ready_pools(target: DenseTarget, sizes: Sizes, ends: Sequence[int]) -> list[Pool]:
    """Pools for all lengths of prompts, the one for the shortest first; compiled side by side, which takes as long."""
    shape, llama = target.shape.config, llama_of(target.weights)
    assert isinstance(shape, Shape)
    room = sizes.context - sizes.max_tokens
    pools = [
        Pool(
            llama,
            shape,
            ends,
            rows=max(1, round(share * sizes.parallel)),
            room=max(1, room // part),
            most_new=sizes.max_tokens,
        )
        for part, share in PARTS
    ]
    with ThreadPoolExecutor(len(pools)) as threads:
        list(threads.map(Pool.compile, pools))
    return pools
