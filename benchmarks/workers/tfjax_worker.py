"""tfjax without its server: greedy, drafts on or off by the job. Arguments: GGUF file, number format."""

from __future__ import annotations

import queue
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from protocol import serve

from tfjax.runtime import prepare_runtime


def main() -> None:
    file, dtype = sys.argv[1:3]
    prepare_runtime()
    from tfjax.config import ServeConfig
    from tfjax.engine.api import Finished, Generation, Sampling, Tokens
    from tfjax.engine.load import load_engine

    engine = load_engine(ServeConfig(model=file, dtype=dtype, offline=True), lambda phase, fraction: None)

    def generate(job: dict[str, Any]) -> Iterator[int]:
        events: queue.SimpleQueue[Tokens | Finished] = queue.SimpleQueue()
        generation = Generation(
            "peer",
            tuple(job["prompt"]),
            job["max_tokens"],
            Sampling(temperature=0.0),
            ignore_eos=True,
            draft=job["draft"],
        )
        engine.submit(generation, events.put)
        while isinstance(event := events.get(), Tokens):
            yield from event.tokens

    serve(f"tfjax {dtype}", {name: version(name) for name in ("tfjax", "jax", "jaxlib", "flax")}, generate)
    engine.close()


if __name__ == "__main__":
    main()
