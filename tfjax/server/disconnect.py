"""The one place that notices a client who left, for streams and whole replies alike."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


class ClientGone(Exception):
    """The client closed the connection."""


class ClientStalled(ClientGone):
    """The client keeps the connection and does not read any more."""


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` until it ends or the client leaves; then `work` is cancelled, awaited, and ClientGone raised.

    The request's body must have been read before: `receive` is watched for the disconnect alone.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return
    finally:
        watch.cancel()
        task.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)
    raise ClientGone
