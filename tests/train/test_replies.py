from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.server.byte_tokenizer import ByteTokenizer
from tests.stubs import FakeClock
from tfjax.engine.api import Finished, Generation, Sink, Tokens
from tfjax.engine.engine import EngineStatus
from tfjax.train.prompts import Prompt
from tfjax.train.replies import Limits, PromptEncoder, Writer
from tfjax.train.shards import read_replies, shards, written

STATS: Any = None
TOKENIZER: Any = ByteTokenizer()


class Killed(BaseException):
    """The process is gone: nothing after it runs."""


class Source:
    """Prompts of growing length; `last` is the number after the last."""

    def __init__(self, last: int = 1 << 30, too_long: int = -1) -> None:
        self.last = last
        self.too_long = too_long

    def draw(self, index: int, attempt: int = 0) -> Prompt:
        if index >= self.last:
            raise IndexError
        text = "x" * (200 if index == self.too_long else 1 + index % 7) + str(attempt)
        chat = ({"role": "user", "content": text},) if index % 2 else ()
        return Prompt(
            index, "chat" if chat else "code continuation", chat, "" if chat else text, 0.5 * (index % 3), index
        )


class StubEngine:
    """Answers at once, in an order of its own; a reply's tokens follow from its prompt and its seed."""

    context = 100
    tokenizer = TOKENIZER

    def __init__(self, parallel: int = 4) -> None:
        self.parallel = parallel
        self.open: list[tuple[Generation, Sink]] = []
        self.asked: Counter[int] = Counter()
        self.generations: list[Generation] = []
        self.error: str | None = None
        self.failed: str | None = None
        self.silent = False
        self._random = random.Random(1)

    def submit(self, generation: Generation, sink: Sink) -> None:
        assert len(self.open) < self.parallel
        self.asked[generation.sampling.seed] += 1
        self.generations.append(generation)
        self.open.append((generation, sink))
        if len(self.open) == self.parallel and not self.silent:
            self.answer()

    def answer(self) -> None:
        generation, sink = self.open.pop(self._random.randrange(len(self.open)))
        tokens = reply_to(generation)
        sink(Tokens(tokens[:2], ""))
        sink(Tokens(tokens[2:], ""))
        sink(Finished("error" if self.error else "stop", STATS, self.error))

    def status(self) -> EngineStatus:
        if not self.failed and self.open:
            self.answer()
        return EngineStatus("", 1.0, True, self.failed, 0, 0, 0.0)


def reply_to(generation: Generation) -> tuple[int, ...]:
    count = min(generation.max_tokens, 3 + generation.sampling.seed % 5)
    return tuple((generation.sampling.seed + len(generation.prompt) + i) % 250 for i in range(count))


def writer(
    directory: Path,
    engine: StubEngine,
    tokens: int,
    source: Source | None = None,
    kill_at: int = 0,
    shard_s: float = 10,
) -> Writer:
    clock = FakeClock()
    reports = Counter[str]()

    def progress(phase: str, share: float) -> None:
        assert 0 <= share <= 1
        clock.advance_ms(1000)
        reports[phase] += 1
        if reports[phase] == kill_at:
            raise Killed

    encoder = PromptEncoder(source or Source(), TOKENIZER, most_tokens=60)
    made: Any = engine
    return Writer(made, encoder, directory, Limits(tokens, 40, engine.parallel, shard_s), progress, clock)


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfjax.train.replies.WAIT_S", 0.001)


def by_number(directory: Path) -> dict[int, Any]:
    found = list(read_replies(directory))
    made = {reply.index: reply for reply in found}
    assert len(made) == len(found), "a prompt was answered twice"
    return made


def test_replies_are_written_until_there_are_enough_tokens(tmp_path: Path) -> None:
    total = writer(tmp_path, StubEngine(), 500).run()
    assert 500 <= total < 600
    assert written(tmp_path)[1] == total
    for index, reply in by_number(tmp_path).items():
        assert reply.kind == ("chat" if index % 2 else "code continuation")
        assert reply.temperature == 0.5 * (index % 3)
        text = TOKENIZER.decode(reply.prompt)
        assert text.startswith("<|im_start|>user\nx" if index % 2 else "x") or "user" in text
        generation = Generation("", reply.prompt, 40, sampling(index))
        assert reply.reply == reply_to(generation)


def sampling(index: int) -> Any:
    from tfjax.engine.api import Sampling

    return Sampling(temperature=0.5 * (index % 3), seed=index)


def test_what_is_asked_is_what_the_prompt_says(tmp_path: Path) -> None:
    engine = StubEngine()
    writer(tmp_path, engine, 60).run()
    for generation in engine.generations:
        index = generation.sampling.seed
        assert generation.sampling == sampling(index)
        assert generation.max_tokens == min(40, 100 - len(generation.prompt))


def test_a_long_prompt_leaves_a_short_reply(tmp_path: Path) -> None:
    engine = StubEngine()
    engine.context = 30
    writer(tmp_path, engine, 60).run()
    assert {generation.max_tokens + len(generation.prompt) for generation in engine.generations} == {30}


def test_files_are_written_as_time_passes(tmp_path: Path) -> None:
    writer(tmp_path, StubEngine(), 500, shard_s=10).run()
    replies = len(by_number(tmp_path))
    assert len(shards(tmp_path)) == -(-replies // 10)


@pytest.mark.parametrize("kill_at", [1, 9, 10, 11, 25, 47])
def test_after_a_kill_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int) -> None:
    """Nothing is answered twice that was written, and the replies are those of a run that was never killed."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    writer(whole, StubEngine(), 400).run()
    first = writer(killed, StubEngine(), 400, kill_at=kill_at)
    monkeypatch.setattr(first, "_write", lambda total, write=first._write: None if dead(first) else write(total))
    with pytest.raises(Killed):
        first.run()
    kept = written(killed)[0]
    engine = StubEngine()
    writer(killed, engine, 400).run()
    assert not kept & set(engine.asked)
    assert max(engine.asked.values()) == 1
    one, other = by_number(whole), by_number(killed)
    assert len(one.keys() & other.keys()) > 50
    assert all(one[index] == other[index] for index in one.keys() & other.keys())


def dead(made: Writer) -> bool:
    """Whether the writer is being left because of the kill."""
    import sys

    return isinstance(sys.exception(), Killed)


def test_an_interrupt_keeps_what_is_finished(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        writer(tmp_path, StubEngine(), 400, kill_at=7).run()
    assert len(by_number(tmp_path)) == 7


def test_a_full_directory_asks_for_nothing(tmp_path: Path) -> None:
    writer(tmp_path, StubEngine(), 100).run()
    engine = StubEngine()
    assert writer(tmp_path, engine, 100).run() >= 100
    assert not engine.asked


def test_it_ends_with_the_last_prompt(tmp_path: Path) -> None:
    writer(tmp_path, StubEngine(), 1 << 30, Source(last=30)).run()
    assert set(by_number(tmp_path)) == set(range(30))
    writer(tmp_path, StubEngine(), 1 << 30, Source(last=30)).run()
    assert len(by_number(tmp_path)) == 30


def test_a_prompt_that_is_always_too_long_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer(tmp_path, StubEngine(), 1 << 30, Source(last=12, too_long=5)).run()
    assert set(by_number(tmp_path)) == set(range(12)) - {5}
    assert "prompt 5 is too long" in caplog.text


def test_a_prompt_that_is_too_long_is_drawn_again() -> None:
    class Shrinking(Source):
        def draw(self, index: int, attempt: int = 0) -> Prompt:
            return Prompt(index, "code continuation", (), "x" * (62 - attempt), 0.0, 0)

    encoded = PromptEncoder(Shrinking(), TOKENIZER, most_tokens=60).encode(0)
    assert encoded is not None
    assert len(encoded[1]) == 60


def test_an_engine_that_fails_ends_the_work(tmp_path: Path) -> None:
    engine = StubEngine()
    engine.silent, engine.failed = True, "no more device"
    with pytest.raises(RuntimeError, match="no more device"):
        writer(tmp_path, engine, 100).run()


def test_a_reply_that_fails_ends_the_work(tmp_path: Path) -> None:
    engine = StubEngine()
    engine.error = "not finite"
    with pytest.raises(RuntimeError, match=r"prompt \d failed: not finite"):
        writer(tmp_path, engine, 100).run()
    assert not by_number(tmp_path)
