"""The real engine over the scripted backend, with a tokenizer of bytes and a sink that remembers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.stubs import EOS, VOCAB, Script, ScriptedBackend, ScriptedProposer, hashed, serial
from tfjax.engine.api import Event, Finished, Generation, Sampling, Ticket, Tokens
from tfjax.engine.engine import Engine, Served
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request

WAIT_S = 20
BYTES = [bytes([ord("a") + token]) if token < 26 else "äöü😀".encode()[token - 26 : token - 25] for token in range(48)]


class ByteTokenizer:
    """Tokens 0..25 are letters, 26..35 single bytes of ä, ö, ü and an emoji; EOS and the rest show nothing."""

    eos_ids = (EOS,)
    vocab_size = VOCAB

    def token_bytes(self, token: int) -> bytes:
        return BYTES[token] if token < len(BYTES) else b""


def spell(text: str) -> list[int]:
    """Tokens whose bytes are `text`."""
    return [BYTES.index(bytes([value])) for value in text.encode()]


@dataclass(frozen=True, slots=True)
class Scripted(Sampling):
    """Sampling rules that the scripted backend can draw by."""

    script: Script = field(default_factory=hashed)

    def __call__(self, context: Sequence[int], prompt: int) -> int:
        return self.script(context, prompt)


def generation(script: Script, **changes: Any) -> Generation:
    asked = {"id": "x", "prompt": (1, 2, 3), "max_tokens": 30, "sampling": Scripted(script=script, seed=77)}
    return Generation(**(asked | changes))


class Receiver:
    """A sink that remembers what it got."""

    def __init__(self) -> None:
        self.events: list[Tokens] = []
        self.finished: Finished | None = None
        self.late: list[Event] = []
        self.started = threading.Event()
        self.ended = threading.Event()

    def __call__(self, event: Event) -> None:
        if self.finished is not None:
            self.late.append(event)
        elif isinstance(event, Finished):
            self.finished = event
            self.ended.set()
        else:
            self.events.append(event)
            self.started.set()

    def wait(self) -> Finished:
        assert self.ended.wait(WAIT_S), "the reply does not end"
        assert self.finished is not None
        assert not self.late
        return self.finished

    @property
    def tokens(self) -> list[int]:
        return [token for event in self.events for token in event.tokens]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events)

    @property
    def text_ends(self) -> list[int]:
        return [end for event in self.events for end in event.text_ends]


@dataclass(slots=True)
class Door:
    """An engine and a way in."""

    engine: Engine
    backend: ScriptedBackend

    def ask(self, asked: Generation) -> tuple[Receiver, Ticket]:
        receiver = Receiver()
        return receiver, self.engine.submit(asked, receiver)

    def reply(self, asked: Generation) -> Receiver:
        receiver, _ = self.ask(asked)
        receiver.wait()
        return receiver


@contextmanager
def opened(
    mode: str | None = None, *, backend: ScriptedBackend | None = None, max_queue: int = 64, **changes: Any
) -> Iterator[Door]:
    """A running engine; `mode` says how its drafts are (None: copies)."""
    numbers = {"lanes": 4, "context": 200, "pages": 64, "page_rows": 4, "vocab_size": VOCAB, "first_width": 8}
    settings = Settings(**(numbers | changes))
    backend = backend or ScriptedBackend(pages=settings.pages, page_rows=settings.page_rows)
    tokenizer: Any = ByteTokenizer()
    served = Served(id="tiny", tokenizer=tokenizer, eos_ids=(EOS,), capabilities={"device": "none"})
    proposer: Callable[[Request], Any] | None = (
        None if mode is None else lambda request: ScriptedProposer(request, mode)
    )
    engine = Engine(backend, settings, served, max_queue=max_queue, proposer=proposer)
    try:
        yield Door(engine, backend)
    finally:
        engine.close()


class Gate:
    """A script that stops the engine's thread at each draw until it is opened."""

    def __init__(self, script: Script | None = None) -> None:
        self._script = script or hashed()
        self._open = threading.Event()
        self.reached = threading.Event()

    def __call__(self, context: Sequence[int], prompt: int) -> int:
        self.reached.set()
        assert self._open.wait(WAIT_S), "the gate stays shut"
        return self._script(context, prompt)

    def open(self) -> None:
        self._open.set()

    def await_reached(self) -> None:
        assert self.reached.wait(WAIT_S), "the engine does not come here"


def expected(asked: Generation) -> list[int]:
    """The serial tokens, stop strings aside."""
    stop_ids = frozenset((*asked.stop_token_ids, *(() if asked.ignore_eos else (EOS,))))
    return serial(Request("s", asked.prompt, asked.max_tokens, stop_ids, sampling=asked.sampling))[0]
