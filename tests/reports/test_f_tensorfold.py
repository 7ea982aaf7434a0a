"""F. What another server of this kind had to fix."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.reports.conftest import MakeStage, MakeTiny
from tests.reports.stage import MODES, babble
from tests.reports.tiny import LANES, ProbedTarget
from tests.server.helpers import COMPLETIONS

START_S = 400


@pytest.mark.parametrize("mode", [*MODES, None])
async def test_f2_six_requests_with_drafters_that_have_state(make_stage: MakeStage, mode: str | None) -> None:
    """F2. All streams shared one draft slot: several requests at once were answered 500.

    The drafters here know their stream only from what they are told of it, so a mixed-up one drafts nothing right.
    """
    stage = make_stage({name: babble(at) for at, name in enumerate("abcdef")}, mode, block=6, k=3, lanes=6)
    asks: list[dict[str, Any]] = [{"prompt": name, "max_tokens": 30} for name in "abcdef"]
    solo = [await stage.ask(**ask) for ask in asks]
    bodies = [{"temperature": 0, **ask} for ask in asks]
    replies = await asyncio.gather(*[stage.client.post(COMPLETIONS, json=body) for body in bodies])
    assert [reply.status_code for reply in replies] == [200] * 6
    for reply, alone in zip(replies, solo, strict=True):
        block = reply.json()["tfjax"]
        assert block["token_sha256"] == alone.block["token_sha256"]
        if mode in ("perfect", "mixed", "short"):
            assert block["accepted"] > 10
        if mode == "perfect":
            assert block["accepted"] == block["drafted"]


@pytest.mark.parametrize("lanes", [1, 3, 4, 5, 15, 16, 17, LANES])
async def test_f3_any_number_of_streams_in_a_round(make_tiny: MakeTiny, tiny: ProbedTarget, lanes: int) -> None:
    """F3. A round whose last group held a single stream asked for a kernel that the device refused, and all failed.

    On the device, at each edge of the compiled widths and one stream beyond; the widest holds fewer streams than lanes.
    """
    assert tuple(tiny.widths) == (4, 16)
    asks: list[dict[str, Any]] = [
        {"prompt": "hello there"[: 1 + at % 11] + "abcdefghijklmnopqr"[at], "seed": at, "max_tokens": 16}
        | {"ignore_eos": True, "temperature": at % 3 * 0.5}
        for at in range(lanes)
    ]
    stage = make_tiny(right=0.6, block=3)
    solo = [await stage.ask(**ask, draft=False) for ask in asks]
    for draft in (True, False):
        together = await stage.ask_all(asks, draft=draft)
        assert [answer.same for answer in together] == [answer.same for answer in solo]


class Serving:
    """`tfjax serve` with the default model, in a process of its own."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._log = log
        # The sizes of the other proofs on these weights, so that what they compiled is used again.
        words = ["--port", str(self.port), "--offline", "--parallel", "5", "--context", "4096"]
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tfjax.serve", *words], stdout=subprocess.PIPE, stderr=file, env={**os.environ}
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def health(self) -> dict[str, Any] | None:
        try:
            body: dict[str, Any] = httpx.get(f"http://127.0.0.1:{self.port}/health").json()
        except httpx.TransportError:
            return None
        return body

    def phases(self) -> Iterator[dict[str, Any]]:
        """What /health says, again and again, until the model is ready."""
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            assert self.process.poll() is None, self.said
            body = self.health()
            if body is not None:
                yield body
                if body["status"] == "ok":
                    return
            time.sleep(0.05)
        raise AssertionError(self.said)

    def stacks(self) -> str:
        """What SIGUSR1 has printed."""
        before = len(self.said)
        self.process.send_signal(signal.SIGUSR1)
        deadline_s = time.monotonic() + 10
        while "most recent call first" not in self.said[before:]:
            assert time.monotonic() < deadline_s, self.said
            time.sleep(0.05)
        time.sleep(0.2)
        return self.said[before:]


def _phase(line: str) -> str:
    """What stands before details, which follow a colon or stand in brackets."""
    return re.split(r"[:(]", line)[0].strip()


@pytest.mark.weights
@pytest.mark.timeout(START_S + 60)
def test_f8_a_start_shows_its_phases_and_a_signal_its_stacks(tmp_path: Path) -> None:
    """F8. A silent start (kernels being built, a stale lock) could not be told from a hang."""
    serving = Serving(tmp_path / "stderr")
    try:
        phases: list[str] = []
        loading = ""
        for body in serving.phases():
            phases.append(body["phase"])
            if body["status"] == "loading" and body["phase"] == "compiling" and not loading:
                loading = serving.stacks()
        seen = [phase for phase, _ in itertools.groupby(phases)]
        assert "compiling" in seen
        assert "load.py" in loading
        lines = re.findall(r"^tfjax: (.+)$", serving.said, re.MULTILINE)
        order = ["default model", "reading weights", "compiling", "proving row invariance", "timing windows"]
        order += ["compiling the drafter", "timing the drafter"]
        timed = re.compile(r" took [0-9.]+ s$")
        begun = [line for line in lines if not timed.search(line)]
        assert [name for line in begun if (name := _phase(line)) in order] == order
        # A phase that took no time to speak of ends without a word; these always take some.
        ended = [line for line in lines if timed.search(line)]
        assert [name for line in ended if (name := _phase(timed.sub("", line))) in order[1:4]] == order[1:4]
        assert "engine.py" in serving.stacks()
    finally:
        serving.process.send_signal(signal.SIGTERM)
        output, _ = serving.process.communicate(timeout=30)
    assert serving.process.returncode == 0
    assert b"base_url" in output
