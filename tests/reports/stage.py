"""The real server over the real engine over a scripted model: what a client sees when drafts behave in known ways."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.scripted_engine import Scripted
from tests.reports.alphabet import Alphabet
from tests.server.helpers import CHAT, COMPLETIONS, chunks
from tests.stubs import VOCAB, Script, ScriptedBackend, ScriptedProposer, hashed
from tfjax.config import ServeConfig
from tfjax.engine.api import Generation, Sampling, Sink, Ticket, TokenLogprob
from tfjax.engine.engine import Engine, Served
from tfjax.lanes.proposer import Proposer
from tfjax.lanes.settings import Settings
from tfjax.lanes.stream import Request, Stream
from tfjax.lanes.window import Result
from tfjax.server.app import build_app
from tfjax.server.service import Service

MODES = ScriptedProposer.MODES
LETTERS = 26
WAIT_S = 60


def babble(seed: int = 0) -> Script:
    """Letters that depend on every token before them, without an end."""
    return hashed(seed, LETTERS)


def model_logprob(context: Sequence[int], token: int, wanted: int) -> TokenLogprob:
    """What the scripted model reports for a token after a context: another context gives other numbers."""
    first = -(1 + hash(tuple(context)) % 999) / 1000
    others = [(token + place) % VOCAB for place in range(1, wanted)]
    top = [(token, first), *((other, first - place) for place, other in enumerate(others, start=1))]
    return TokenLogprob(token, first, tuple(top[:wanted]))


class ScriptedModel(ScriptedBackend):
    """The scripted backend, with log probabilities as the server spells them for requests that ask."""

    def _draw(self, stream: Stream, position: int, rows: int) -> Result:
        result = super()._draw(stream, position, rows)
        wanted = stream.request.sampling.logprobs
        if wanted is None or result.error is not None:
            return Result(result.draws, error=result.error)
        seen = self._read_back(stream, position + rows)
        entries = [model_logprob(seen[: position + 1 + row], draw, wanted) for row, draw in enumerate(result.draws)]
        return Result(result.draws, entries)


Book = Script | Mapping[str, Script]
"""What the model says: always the same script, or one by the prompt's text."""


class ScriptedEngine(Engine):
    """The engine, with each request's script put beside its sampling rules."""

    def __init__(self, book: Book, *arguments: Any, **options: Any) -> None:
        self.book = book
        super().__init__(*arguments, **options)

    def submit(self, generation: Generation, sink: Sink) -> Ticket:
        return super().submit(replace(generation, sampling=self._scripted(generation)), sink)

    def _scripted(self, generation: Generation) -> Scripted:
        rules = {field.name: getattr(generation.sampling, field.name) for field in dataclasses.fields(Sampling)}
        script = self.book[self.tokenizer.decode(generation.prompt)] if isinstance(self.book, Mapping) else self.book
        return Scripted(**rules, script=script)


def scripted_engine(
    book: Book,
    mode: str | None = None,
    *,
    block: int = 8,
    k: int = 2,
    drafter_limit: int = 1 << 30,
    backend: ScriptedBackend | None = None,
    max_queue: int = 64,
    tokenizer: Alphabet | None = None,
    proposer: Callable[[Request], Proposer] | None = None,
    **changes: Any,
) -> ScriptedEngine:
    """A running engine. `mode` is the drafter's manner (None: copies), `block` its most drafts a round."""
    numbers = {"lanes": 8, "context": 256, "pages": 600, "page_rows": 4, "vocab_size": VOCAB, "draft_tokens": block}
    settings = Settings(**({"first_width": block} | numbers | changes))
    if proposer is None and mode is not None:

        def proposer(request: Request) -> Proposer:
            return ScriptedProposer(request, mode, k, drafter_limit)

    words: Any = tokenizer or Alphabet()
    return ScriptedEngine(
        book,
        backend or ScriptedModel(pages=settings.pages, page_rows=settings.page_rows),
        settings,
        Served("scripted", words, words.eos_ids),
        max_queue=max_queue,
        proposer=proposer,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply, whole or folded from a stream.

    Attributes:
        block: the tfjax block.
        deltas: the texts of a stream's chunks; empty for a whole reply.
    """

    text: str
    reason: str
    usage: dict[str, Any]
    logprobs: dict[str, list[Any]]
    block: dict[str, Any]
    deltas: tuple[str, ...] = ()

    @property
    def same(self) -> tuple[object, ...]:
        """What drafts must not change."""
        return self.text, self.reason, self.usage, self.logprobs, self.block["token_sha256"]

    @property
    def tokens(self) -> int:
        return int(self.usage["completion_tokens"])


class Stage:
    """An application in memory, and a client of it. The engine is closed with it."""

    def __init__(self, engine: Engine, **settings: Any) -> None:
        self.engine = engine
        self.service = Service(ServeConfig(**settings), engine)
        self.app = build_app(self.service)
        transport = httpx.ASGITransport(self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080", timeout=60)

    async def ask(self, prompt: str | list[int], *, stream: bool = False, chat: bool = False, **fields: Any) -> Answer:
        """A reply to `prompt`; the sampling is greedy where `fields` say nothing."""
        told = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
        body = {"temperature": 0, **told, **fields}
        route = CHAT if chat else COMPLETIONS
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
            return folded(chunks(await self.post(route, body)))
        reply = await self.post(route, body)
        assert reply.status_code == 200, reply.text
        return folded([reply.json()], whole=True)

    async def post(self, route: str, body: Mapping[str, Any]) -> httpx.Response:
        """The answer to a body; fails where the engine's thread has ended or nothing comes."""
        asking = asyncio.ensure_future(self.client.post(route, json=body))
        deadline_s = time.monotonic() + WAIT_S
        while not (await asyncio.wait({asking}, timeout=0.5))[0]:
            alive = self.engine._thread.is_alive() and time.monotonic() < deadline_s
            if not alive:
                asking.cancel()
            assert alive, "no answer comes; what the thread raised is shown below"
        return await asking

    async def ask_all(self, asks: Sequence[Mapping[str, Any]], **fields: Any) -> list[Answer]:
        """Replies to requests that run at the same time."""
        return await asyncio.gather(*[self.ask(**ask, **fields) for ask in asks])

    async def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 where nothing was counted yet."""
        text = (await self.client.get("/metrics")).text
        families = text_string_to_metric_families(text)
        return sum(sample.value for family in families for sample in family.samples if sample.name == f"tfjax:{name}")

    def close(self) -> None:
        self.service.workers.close()
        self.engine.close()


def folded(parts: Sequence[Mapping[str, Any]], *, whole: bool = False) -> Answer:
    """One answer from a whole reply, or from all chunks of a stream."""
    choices = [part["choices"][0] for part in parts if part["choices"]]
    texts = [_text_of(choice) for choice in choices]
    logprobs: dict[str, list[Any]] = {}
    for choice in choices:
        for key, entries in (choice.get("logprobs") or {}).items():
            logprobs.setdefault(key, []).extend(entries or [])
    last = parts[0] if whole else parts[-2]
    return Answer(
        "".join(texts),
        choices[-1]["finish_reason"],
        parts[-1]["usage"],
        logprobs,
        last["tfjax"],
        () if whole else tuple(texts),
    )


def _text_of(choice: Mapping[str, Any]) -> str:
    message = choice.get("message") or choice.get("delta")
    return str(choice["text"] if message is None and "text" in choice else (message or {}).get("content") or "")


def logprob_tokens(answer: Answer) -> list[str]:
    """The tokens of the log probabilities, in the form of either route."""
    if "tokens" in answer.logprobs:
        return answer.logprobs["tokens"]
    return [entry["token"] for entry in answer.logprobs.get("content", [])]
