"""`python -m tests.bench.fake_serve`: takes the flags of tfjax serve and serves a scripted engine.

MODEL says what happens: `fast` gains by drafts, `slow` loses by them, `lying` has other tokens with drafts, `broken`
ends while loading, `hanging` never loads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tests.bench.scripted import lying, own_text, scripted_engine
from tests.server.fake_engine import FakeEngine
from tfjax.config import ServeConfig
from tfjax.serve import parser
from tfjax.server.run import run_server
from tfjax.sources import resolve
from tfjax.terminal import run_command


def main() -> int:
    config = resolve(ServeConfig, parser().parse(sys.argv[1:]))

    def load(progress: Callable[[str, float], None]) -> FakeEngine:
        progress("loading the script", 0.5)
        if config.model == "broken":
            raise OSError("the script is not there; write one")
        if config.model == "hanging":
            time.sleep(600)
        drafts = 1 if config.no_drafts or config.model == "slow" else 4
        plain = 4 if config.model == "slow" else 1
        return scripted_engine(
            lying if config.model == "lying" else own_text, per_round=drafts, plain_per_round=plain, round_s=0.003
        )

    return run_command("fake serve", lambda: run_server(config, load))


if __name__ == "__main__":
    sys.exit(main())
