"""What watches the engine while it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.server.conftest import MakeEngine
from tests.server.fake_engine import FakeEngine
from tests.server.helpers import until
from tfjax.config import ServeConfig
from tfjax.server import monitor as monitor_module
from tfjax.server.monitor import Monitor
from tfjax.server.service import Service


@asynccontextmanager
async def watching(engine: FakeEngine | None) -> AsyncIterator[Monitor]:
    monitor = Monitor(Service(ServeConfig(), engine), tick_s=0.01, no_progress_s=60)
    task = asyncio.create_task(monitor.run())
    yield monitor
    task.cancel()


async def test_a_standstill_turns_health_and_progress_turns_it_back(
    make_engine: MakeEngine, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = make_engine()
    async with watching(engine) as monitor:
        service = monitor._service
        engine.stalled_s = 59.0
        await asyncio.sleep(0.05)
        assert service.health()[0] == 200
        engine.stalled_s = 60.0
        await until(lambda: service.health()[0] == 503)
        assert service.health()[1].reason == "The engine makes no progress."
        assert "fake_engine.py" in capfd.readouterr().err
        engine.stalled_s = 0.0
        await until(lambda: service.health()[0] == 200)
        assert not monitor.failure.is_set()


async def test_a_failed_engine_is_told(make_engine: MakeEngine) -> None:
    engine = make_engine()
    async with watching(engine) as monitor:
        await asyncio.sleep(0.03)
        assert not monitor.failure.is_set()
        engine.failed = "device lost"
        await asyncio.wait_for(monitor.failure.wait(), 5)


async def test_without_an_engine_it_waits() -> None:
    async with watching(None) as monitor:
        await asyncio.sleep(0.03)
        assert not monitor.failure.is_set()


async def test_a_status_line_when_busy_only(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(monitor_module, "STATUS_EVERY_S", 0.03)
    caplog.set_level(logging.INFO, "tfjax.server")

    def lines() -> list[dict[str, object]]:
        return [record.__dict__["fields"] for record in caplog.records if record.message == "status"]

    async with watching(make_engine()) as monitor:
        await asyncio.sleep(0.1)
        assert lines() == []
        monitor._service.metrics.tokens(30, None)
        await until(lambda: bool(lines()))
        await asyncio.sleep(0.1)
    assert len(lines()) == 1
    assert float(str(lines()[0]["tok_s"])) > 30
    assert (lines()[0]["running"], lines()[0]["waiting"]) == (0, 0)
