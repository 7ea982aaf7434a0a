"""The bounded pool."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tfjax.server.errors import ApiError
from tfjax.server.workers import Workers


async def test_more_than_the_limit_is_refused_until_jobs_end() -> None:
    workers = Workers(threads=1, max_pending=1)
    go = threading.Event()
    first = asyncio.create_task(workers.run(lambda: go.wait(5)))
    second = asyncio.create_task(workers.run(lambda: 2))
    await asyncio.sleep(0.01)
    with pytest.raises(ApiError) as refused:
        await workers.run(lambda: 3)
    assert refused.value.status == 503
    go.set()
    assert await second == 2
    assert await first is True
    assert await workers.run(lambda: 4) == 4
    workers.close()


async def test_an_error_of_a_job_is_raised_and_counted_off() -> None:
    workers = Workers(threads=1, max_pending=0)
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 // 0)
    workers.close()


async def test_the_loop_goes_on_while_a_job_runs() -> None:
    workers = Workers(threads=1)
    go = threading.Event()
    job = asyncio.create_task(workers.run(lambda: go.wait(5)))
    await asyncio.sleep(0.01)
    go.set()
    assert await job
    workers.close()
