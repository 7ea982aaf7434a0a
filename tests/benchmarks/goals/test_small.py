from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

import pytest

from benchmarks import device_engine
from benchmarks.blocks import Blocks
from benchmarks.goals import small
from benchmarks.goals.table import GOALS, measured

ABOUT = {"kernels": {"route": "reference", "reason": "a test"}}


class Client:
    """Takes a second for a plain reply and half of it for a drafted one; the first of each is slow."""

    asked: list[Mapping[str, Any]]

    def __init__(self, url: str) -> None:
        Client.asked = []
        assert url == "http://here"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def facts(self) -> Any:
        return SimpleNamespace(model="m", capabilities={"engine": ABOUT})

    async def ask(self, route: str, fields: Mapping[str, Any]) -> Any:
        Client.asked.append(fields)
        seconds = 100.0 if len(Client.asked) <= 2 else 0.5 if fields["draft"] else 1.0
        return SimpleNamespace(tokens=fields["max_tokens"], sent_s=1.0, ended_s=1.0 + seconds)


def rates(found: dict[str, Any], block: str) -> list[float | None]:
    return [measured({block: found}, goal) for goal in GOALS if goal.block == block]


def test_rates_over_http_are_those_of_whole_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[str] = []

    @contextmanager
    def servers(wanted: Sequence[Any], ready_s: float, say: Any) -> Iterator[list[Any]]:
        flags.extend(wanted[0][2])
        yield [SimpleNamespace(url="http://here")]

    monkeypatch.setattr(small, "own_servers", servers)
    monkeypatch.setattr(small, "Client", Client)
    blocks = Blocks(1e4)
    small.measure_http(blocks, "some.gguf", "reference")
    assert rates(blocks.found, "small http") == [256.0, 512.0]
    assert blocks.found["plain"]["note"] == "reference operators: a test"
    assert flags[:3] == ["some.gguf", "--kernels", "reference"]
    assert len({fields["cache_salt"] for fields in Client.asked}) == len(Client.asked) == 8


def test_rates_of_the_lane_loop_are_those_of_the_engine_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    class Measured:
        facts = ABOUT
        engine = "engine"

        def __init__(self, *words: str) -> None:
            assert words[1:] == ("path", "auto")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None:
            pass

    speed = {"plain_tokens_per_s": 700.0, "drafted_tokens_per_s": 900.0}
    monkeypatch.setattr(device_engine, "Measured", Measured)
    monkeypatch.setattr(device_engine, "speed", lambda engine, streams: speed)
    monkeypatch.setattr(small, "resolve_model", lambda model, **more: "path")
    blocks = Blocks(1e4)
    small.measure_lanes(blocks, None, "auto")
    assert rates(blocks.found, "small lanes") == [700.0, 900.0]
