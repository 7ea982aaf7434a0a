"""One row of a Llama shape beside torch's in the same minutes: transformers with a static cache, compiled.

torch runs in a process of its own and waits while ours is timed, and the other way round.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from benchmarks.blocks import Blocks
from tfjax.kernels.specs import SPECS, Spec

WORKER = Path(__file__).resolve().parent.parent / "workers" / "torch_window.py"
MODES = {"reduce-overhead": 60.0, "max-autotune": 180.0}
"""How torch compiles, and the seconds that it and the timing take at most."""
SHARE, PAST, STEPS, TURNS = "0.45", 512, 512, 3
"""Of the memory, for jax; positions before the row; room for all that torch computes, whose cache moves on; timings."""
MEMORY_VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")


def limit_memory(share: str) -> None:
    """Leave the other process some of the device's memory, unless the user said how much jax takes."""
    if not any(name in os.environ for name in MEMORY_VARIABLES):
        os.environ[MEMORY_VARIABLES[0]] = share


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one model, as the worker wants them."""

    name: str
    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    past: int = PAST
    capacity: int = PAST + STEPS

    @classmethod
    def of(cls, name: str) -> Self:
        layers, tied = {"Llama-3-8B": (32, False), "SmolLM2-135M": (30, True)}[name]
        return cls.made(SPECS[name], layers, tied=tied)

    @classmethod
    def made(cls, spec: Spec, layers: int, *, tied: bool, past: int = PAST) -> Self:
        sizes = (spec.vocab, spec.hidden, spec.inner, layers, spec.heads, spec.kv_heads, spec.head_dim)
        return cls(spec.name, *sizes, tied, past, past + STEPS)

    @property
    def spec(self) -> Spec:
        return Spec(self.name, self.hidden, self.inner, self.heads, self.kv_heads, self.head_dim, self.vocab)


class Torch:
    """The other process. A context manager that waits until it is ready, and ends it.

    Attributes:
        hello: what it says first: versions, and how long compiling took.
    """

    def __init__(self, python: str, sizes: Sizes, mode: str) -> None:
        # Its packages are its own: PYTHONPATH may lead to ours, of other versions than torch wants.
        self._process = subprocess.Popen(
            [python, str(WORKER), json.dumps(asdict(sizes)), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        self.hello: dict[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            self.hello = self._read()
        except RuntimeError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def ms(self) -> float:
        """Of one forward among some that are queued."""
        assert self._process.stdin is not None
        self._process.stdin.write("time\n")
        self._process.stdin.flush()
        return float(self._read()["ms"])

    def _read(self) -> dict[str, Any]:
        """The next line.

        Raises:
            RuntimeError: torch cannot do it, with the reason.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                if "error" in answer:
                    raise RuntimeError(f"torch peer: {answer['error']}")
                return answer
        raise RuntimeError(f"torch peer ended with code {self._process.wait()}; its last words are above")


def measure_peer(blocks: Blocks, sizes: Sizes, kernels: str, python: str, modes: Sequence[str] = tuple(MODES)) -> None:
    """Ours against the fastest of torch's; each kind of torch is timed in turn with ours."""
    from benchmarks.device_window import TILE_ROWS, windows_of
    from benchmarks.timing import first_s, queued_ms
    from benchmarks.windows import llama_of

    config = llama_of(sizes.spec, sizes.layers, tied=sizes.tied)
    windows = windows_of(config, kernels, sizes.capacity)
    bucket = 8 if windows.model.kernels.stacked else TILE_ROWS
    call = windows.call(1, bucket, sizes.past)
    first_s(call)

    def beside(mode: str) -> dict[str, Any]:
        with Torch(python, sizes, mode) as torch:
            pairs = [(min(queued_ms(call)), torch.ms()) for _ in range(TURNS)]
        ours, theirs = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
        print(f"{sizes.name}, 1 row: ours {ours:.2f} ms, torch {mode} {theirs:.2f} ms", flush=True)
        by = str(windows.model.kernels.route)
        return {"pairs_ms": pairs, "ours_ms": ours, "operators": by, "torch_ms": theirs, "torch": torch.hello}

    for mode in modes:
        blocks.run(mode, MODES.get(mode, 0.0), partial(beside, mode))
        _keep_fastest(blocks, modes)


def _keep_fastest(blocks: Blocks, modes: Sequence[str]) -> None:
    """Of what is known so far."""
    known = {mode: blocks.found[mode] for mode in modes if "torch_ms" in (blocks.found.get(mode) or {})}
    if not known:
        reason = "; ".join(str((blocks.found.get(mode) or {}).get("error", "")) for mode in modes)
        blocks.keep("ours", {"error": reason})
        return
    fastest = min(known, key=lambda mode: known[mode]["torch_ms"])
    ours, theirs = min(one["ours_ms"] for one in known.values()), known[fastest]["torch_ms"]
    note = f"ours {ours:.2f} ms ({known[fastest]['operators']}), torch {fastest} {theirs:.2f} ms"
    blocks.keep("ours", {"value": theirs / ours, "note": note})
