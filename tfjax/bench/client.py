"""Asks a server for streamed replies. Whatever a server does wrong becomes one line that says what to do about it."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx2

from tfjax.bench.reply import Arrival, Reply
from tfjax.terminal import CommandError

CONNECT_S = 10.0
SHOWN_CHARS = 200
ASK = "give the URL of an OpenAI-compatible server, such as http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself. `capabilities` is None where it is not tfjax."""

    model: str
    capabilities: Mapping[str, Any] | None


class Client:
    """One server. Use as an async context manager."""

    def __init__(self, url: str, *, api_key: str | None = None, timeout_s: float = 300.0) -> None:
        self.base = base_url(url)
        self._timeout_s = timeout_s
        self._http = httpx2.AsyncClient(
            base_url=self.base,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx2.Timeout(timeout_s, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            # A proxy of the environment is for the world outside.
            trust_env=not _is_loopback(self.base),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self._http.aclose()

    async def facts(self, model: str | None = None) -> ServerFacts:
        """The model that is served, or the one named, and what /capabilities says.

        Raises:
            CommandError: the server cannot be reached, or is none of this kind.
        """
        if model is None:
            listed = await self._get("/v1/models")
            try:
                model = str(listed["data"][0]["id"])
            except (KeyError, IndexError, TypeError):
                raise CommandError(f"{self.base}/v1/models names no model; give one with --model, or {ASK}") from None
        return ServerFacts(model, await self._capabilities())

    async def ask(self, route: str, fields: Mapping[str, Any]) -> Reply:
        """Sends a request and reads its stream to the end.

        Raises:
            CommandError: anything but a whole stream came back.
        """
        body = {**fields, "stream": True, "stream_options": {"include_usage": True}}
        stream = _Stream(time.perf_counter(), self.base + route)
        try:
            async with self._http.stream("POST", route, json=body) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise CommandError(_refusal(self.base + route, response))
                _check_type(self.base + route, response, "text/event-stream")
                async for event in httpx2.EventSource(response):
                    stream.add(event.data, time.perf_counter())
        except httpx2.HTTPError as error:
            silent = isinstance(error, httpx2.TimeoutException)
            raise CommandError((None if silent else stream.broken()) or self._unreachable(error)) from None
        return stream.reply()

    async def _get(self, route: str) -> Any:
        try:
            response = await self._http.get(route)
        except httpx2.HTTPError as error:
            raise CommandError(self._unreachable(error)) from None
        if response.status_code != 200:
            raise CommandError(_refusal(self.base + route, response))
        _check_type(self.base + route, response, "application/json")
        try:
            return response.json()
        except ValueError:
            raise CommandError(f"{self.base}{route} answers with JSON that is broken; {ASK}") from None

    async def _capabilities(self) -> Mapping[str, Any] | None:
        try:
            response = await self._http.get("/capabilities")
            found = response.json() if response.status_code == 200 else None
        except (httpx2.HTTPError, ValueError):
            return None
        return found if isinstance(found, dict) and "engine" in found else None

    def _unreachable(self, error: httpx2.HTTPError) -> str:
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return f"{self.base} cannot be reached ({_words(error)}); start a server (tfjax serve), or {ASK}"
        if isinstance(error, httpx2.TimeoutException):
            return f"{self.base} was silent for {self._timeout_s:g} s; raise --timeout-s, or look at the server's log"
        return f"{self.base} broke the connection ({_words(error)}); look at the server's log"


class _Stream:
    """Folds events into a reply."""

    def __init__(self, sent_s: float, url: str) -> None:
        self._sent_s = sent_s
        self._url = url
        self._arrivals: list[Arrival] = []
        self._texts: list[str] = []
        self._last: dict[str, Any] = {}
        self._done = False

    def add(self, data: str, at_s: float) -> None:
        if data == "[DONE]":
            self._done = True
            return
        try:
            chunk = json.loads(data)
            choices = chunk.get("choices") or [{}]
            text = (choices[0].get("delta") or {}).get("content") or choices[0].get("text") or ""
        except (ValueError, AttributeError, TypeError, KeyError):
            raise CommandError(f"{self._url} sent an event that is no chunk: {_short(data)}; {ASK}") from None
        if chunk.get("error"):
            raise CommandError(
                f"{self._url} ended the stream with an error: {_message(chunk)}; look at the server's log"
            )
        self._last |= {key: chunk[key] for key in ("usage", "tfjax") if isinstance(chunk.get(key), dict)}
        self._last |= {"finish_reason": choices[0]["finish_reason"]} if choices[0].get("finish_reason") else {}
        if text:
            self._arrivals.append(Arrival(at_s, len(text)))
            self._texts.append(text)

    def broken(self) -> str | None:
        """What to say when the connection breaks after the stream began."""
        if not self._arrivals:
            return None
        return (
            f"{self._url} broke off the stream after {len(''.join(self._texts))} characters; "
            "look at the logs of the server and of any proxy before it"
        )

    def reply(self) -> Reply:
        if not self._done:
            raise CommandError(self.broken() or f"{self._url} sent a stream without text and without its end; {ASK}")
        usage = self._last.get("usage", {})
        return Reply(
            sent_s=self._sent_s,
            ended_s=self._arrivals[-1].at_s if self._arrivals else time.perf_counter(),
            arrivals=tuple(self._arrivals),
            text="".join(self._texts),
            tokens=usage.get("completion_tokens") or len(self._arrivals),
            prompt_tokens=usage.get("prompt_tokens"),
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            finish_reason=self._last.get("finish_reason"),
            block=self._last.get("tfjax", {}),
        )


def base_url(text: str) -> str:
    """The URL without a trailing slash and without /v1, http where no scheme is given.

    Raises:
        CommandError: it is none.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urllib.parse.urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query
    except ValueError:
        valid = False
    if not valid:
        raise CommandError(f"{text!r} is no URL of a server; {ASK}")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _is_loopback(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _check_type(url: str, response: httpx2.Response, wanted: str) -> None:
    found = response.headers.get("content-type", "nothing").partition(";")[0].strip().lower()
    if found != wanted:
        raise CommandError(f"{url} answers with {found} instead of {wanted}; {ASK}")


def _refusal(url: str, response: httpx2.Response) -> str:
    remedies = {
        400: "ask for something else: --kinds code sends plain text, --tokens and --stop-at-eos change the length",
        401: "give the server's key with --api-key",
        403: "give the server's key with --api-key",
        404: f"check --model, or {ASK}",
        429: "the server is busy; give lower --levels",
        503: "wait until the server is ready; when its queue is full, give lower --levels",
    }
    try:
        message = _message(response.json())
    except ValueError:
        message = _short(response.text) if response.headers.get("content-type", "").startswith("text/plain") else ""
    detail = f": {message}" if message else ""
    remedy = remedies.get(response.status_code, "look at the server's log")
    return f"{url} answers {response.status_code}{detail}; {remedy}"


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return _short(str(message).rstrip(".")) if message else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}..."


def _words(error: Exception) -> str:
    return _short(str(error)) or type(error).__name__
