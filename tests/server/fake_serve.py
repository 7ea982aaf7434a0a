"""`python -m tests.server.fake_serve OPTIONS_AS_JSON`: the server over the fake engine, as a process of its own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from tests.server.byte_tokenizer import ByteTokenizer
from tests.server.fake_engine import FakeEngine, says
from tfjax.config import ServeConfig
from tfjax.server.run import run_server


def main() -> int:
    """Options: load_s, load_error, settings; all others are the engine's."""
    options = json.loads(sys.argv[1])
    load_s, load_error = options.pop("load_s", 0.0), options.pop("load_error", None)
    fail_after_s = options.pop("fail_after_s", None)
    config = ServeConfig(**{"port": 0} | options.pop("settings", {}))

    def load(progress: Callable[[str, float], None]) -> FakeEngine:
        progress("read", 0.5)
        time.sleep(load_s)
        if load_error:
            raise ValueError(load_error)
        engine = FakeEngine(says("x", end=None), tokenizer=ByteTokenizer(None), context=10**9, **options)
        if fail_after_s is not None:
            time.sleep(fail_after_s)
            engine.failed = "device lost"
        return engine

    return run_server(config, load)


if __name__ == "__main__":
    sys.exit(main())
