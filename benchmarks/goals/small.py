"""One stream of a small model, through engine and lane loop and over HTTP, plain and drafted in turn."""

from __future__ import annotations

import asyncio
import secrets
import statistics
from functools import partial
from typing import Any

from benchmarks.blocks import Blocks
from benchmarks.device_serve import PROMPTS
from tfjax.bench.client import Client
from tfjax.bench.servers import SERVE, own_servers
from tfjax.checkpoints.resolve import resolve_model

START_S, SPEED_S, HTTP_S = 85.0, 10.0, 50.0
TOKENS, REPEATS, READY_S = 256, 3, 180.0
KINDS = {"plain": False, "drafted": True}


def measure_lanes(blocks: Blocks, model: str | None, kernels: str) -> None:
    """In this process, from the request to the last token."""
    from benchmarks.device_engine import Measured, speed

    path = str(resolve_model(model, offline=True, progress=lambda phase, share: None))
    start = partial(Measured, "small model", path, kernels)
    started = blocks.run("start", START_S, start, lambda engine: engine.facts)
    if started is None:
        return
    with started as measured:
        found = blocks.run("speed", SPEED_S, lambda: speed(measured.engine, 1))
        for kind in KINDS if found else ():
            value = {"value": found[f"{kind}_tokens_per_s"], "note": _note(measured.facts)}
            blocks.keep(kind, value)


def _note(about: dict[str, Any]) -> str:
    route = str(about["kernels"]["route"])
    return "" if route != "reference" else f"reference operators: {about['kernels']['reason']}"


def measure_http(blocks: Blocks, model: str | None, kernels: str) -> None:
    """A server process and one client."""
    found = blocks.run("speed", HTTP_S, partial(_served, model, kernels))
    for kind in KINDS if found else ():
        blocks.keep(kind, {"value": statistics.median(found[kind]), "note": found["note"]})


def _served(model: str | None, kernels: str) -> dict[str, Any]:
    flags = ["--kernels", kernels, "--context", "1024", "--prompt-cache-gib", "0", "--offline"]
    wanted = [("", SERVE, [*([model] if model else []), *flags])]
    with own_servers(wanted, READY_S, lambda line: print(f"    {line}", flush=True)) as (server,):
        return asyncio.run(_asked(server.url))


async def _asked(url: str) -> dict[str, Any]:
    """Tokens a second of each reply, the first pair aside."""
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    async with Client(url) as client:
        facts = await client.facts()
        for repeat in range(REPEATS + 1):
            for kind, draft in KINDS.items():
                fields = {"model": facts.model, "prompt": PROMPTS[0], "max_tokens": TOKENS, "temperature": 0}
                fields |= {"ignore_eos": True, "draft": draft, "cache_salt": secrets.token_hex(8)}
                reply = await client.ask("/v1/completions", fields)
                if repeat:
                    rates[kind].append(reply.tokens / (reply.ended_s - reply.sent_s))
    for kind, seen in rates.items():
        print(f"over HTTP, 1 stream, {kind}: {statistics.median(seen):.0f} tokens/s", flush=True)
    about = dict((facts.capabilities or {})["engine"])
    return {**rates, "note": _note(about), "window_ms": about.get("window_ms"), "drafter": about.get("drafter")}
