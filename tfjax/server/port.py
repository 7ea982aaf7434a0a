"""What the server needs of an engine and of a tokenizer; the real ones fit these protocols, and so do the stubs of the tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tfjax.engine.api import Generation, Sink, Ticket


class TokenizerPort(Protocol):
    """Text to token ids and back."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> tuple[int, ...]: ...

    @property
    def bos_token(self) -> str: ...

    @property
    def eos_token(self) -> str: ...

    @property
    def chat_template(self) -> str | None: ...

    def encode(self, text: str, *, add_bos: bool | None = None, parse_special: bool = True) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def token_bytes(self, token: int) -> bytes: ...

    def token_text(self, token: int) -> str: ...

    def is_special(self, token: int) -> bool: ...


class StatusPort(Protocol):
    """A moment of the engine. `failed` holds the reason once it cannot go on."""

    @property
    def phase(self) -> str: ...

    @property
    def fraction(self) -> float: ...

    @property
    def ready(self) -> bool: ...

    @property
    def failed(self) -> str | None: ...

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...


class EnginePort(Protocol):
    """The engine as the server sees it. Every method may be called from any thread."""

    @property
    def tokenizer(self) -> TokenizerPort: ...

    @property
    def context(self) -> int: ...

    @property
    def model_id(self) -> str: ...

    @property
    def generation_config(self) -> Mapping[str, object]: ...

    def submit(self, generation: Generation, sink: Sink) -> Ticket: ...

    def capabilities(self) -> dict[str, object]: ...

    def status(self) -> StatusPort: ...

    def metrics(self) -> Mapping[str, float]: ...

    def drain(self, timeout_s: float) -> None: ...

    def close(self) -> None: ...
