"""The helper that every generation request runs under."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from tfjax.server.disconnect import ClientGone, while_connected


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_work_that_ends_ends_it() -> None:
    done = []

    async def work() -> None:
        done.append(1)

    await while_connected(never, work())
    assert done == [1]


async def test_an_error_of_the_work_comes_through() -> None:
    async def work() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError):
        await while_connected(never, work())


async def test_a_disconnect_cancels_the_work_and_waits_for_its_end() -> None:
    ended = []
    messages = [{"type": "http.request"}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        await asyncio.sleep(0)
        return messages.pop(0)

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0.01)
            ended.append(1)

    with pytest.raises(ClientGone):
        await while_connected(receive, work())
    assert ended == [1]


async def test_cancelling_the_caller_cancels_the_work() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(1)

    task = asyncio.create_task(while_connected(never, work()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [1]
    assert len(asyncio.all_tasks()) == 1
