"""Events cross from the engine's thread, in order, bounded."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest

from tfjax.engine.api import Finished, Stats, TokenLogprob, Tokens
from tfjax.server.channel import Channel, merged


def tokens(*ids: int) -> Tokens:
    ends = tuple(range(1, len(ids) + 1))
    return Tokens(ids, "".join(map(chr, ids)), tuple(TokenLogprob(i, -1.0, ()) for i in ids), ends)


FINISHED = Finished("stop", cast("Stats", None))


async def test_order_over_threads() -> None:
    channel = Channel()
    sink = channel.sink(0)

    def engine() -> None:
        for n in range(97, 117):
            sink(tokens(n))
        sink(FINISHED)

    threading.Thread(target=engine).start()
    seen = [await channel.next(1) for _ in range(21)]
    assert [item[1].text for item in seen[:-1] if item and isinstance(item[1], Tokens)] == [
        chr(n) for n in range(97, 117)
    ]
    assert seen[-1] == (0, FINISHED)


async def test_a_full_channel_joins_tokens_of_a_choice_and_loses_nothing() -> None:
    channel = Channel(max_events=4)
    for n in range(97, 123):
        channel.sink(n % 2)(tokens(n))
    channel.sink(0)(FINISHED)
    channel.sink(1)(FINISHED)
    await asyncio.sleep(0)
    assert len(channel) <= 6
    texts, ends = {0: "", 1: ""}, []
    while len(channel):
        item = await channel.next(1)
        assert item is not None
        if isinstance(item[1], Tokens):
            assert len(item[1].tokens) == len(item[1].text) == len(item[1].logprobs or ())
            texts[item[0]] += item[1].text
        else:
            ends.append(item[0])
    assert texts == {0: "bdfhjlnprtvxz", 1: "acegikmoqsuwy"}
    assert ends == [0, 1]


async def test_nothing_is_joined_over_the_end() -> None:
    channel = Channel(max_events=1)
    for event in (tokens(97), FINISHED, tokens(98)):
        channel.sink(0)(event)
    await asyncio.sleep(0)
    assert [(await channel.next(1) or (0, None))[1] for _ in range(3)] == [tokens(97), FINISHED, tokens(98)]


async def test_silence_gives_none() -> None:
    assert await Channel().next(0.01) is None


async def test_an_error_comes_before_what_waits() -> None:
    channel = Channel()
    channel.sink(0)(tokens(97))
    await asyncio.sleep(0)
    channel.fail(RuntimeError("stop"))
    with pytest.raises(RuntimeError, match="stop"):
        await channel.next(1)


async def test_a_closed_channel_drops_everything() -> None:
    channel = Channel()
    sink = channel.sink(0)
    sink(tokens(97))
    channel.close()
    sink(tokens(98))
    await asyncio.sleep(0)
    assert len(channel) == 0


def test_a_sink_outlives_its_loop() -> None:
    async def make() -> Channel:
        return Channel()

    asyncio.run(make()).sink(0)(tokens(97))


def test_merged_keeps_missing_logprobs_missing() -> None:
    assert merged(Tokens((1,), "a"), Tokens((2,), "b")) == Tokens((1, 2), "ab", None, ())
