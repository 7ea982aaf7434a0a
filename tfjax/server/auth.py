"""The outermost layer: nothing but /health is reached without a key."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tfjax.api_keys import read_api_keys
from tfjax.options import ConfigError
from tfjax.server.errors import ApiError, response_of
from tfjax.server.record import record_of

log = logging.getLogger("tfjax.server")

OPEN_PATHS = ("/health", "/health/ready")


class Keys:
    """The keys of the configuration and of a key file, which is read again when it changes."""

    def __init__(self, keys: Sequence[str], file: Path | None = None) -> None:
        self._fixed = [(f"key-{at + 1}", _digest(key.encode())) for at, key in enumerate(keys)]
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._from_file: list[tuple[str, bytes]] = []

    @property
    def required(self) -> bool:
        return bool(self._fixed) or self._file is not None

    def label(self, offered: bytes) -> str | None:
        """The label of the key that equals `offered`, or None. Takes the same time for each outcome."""
        digest = _digest(offered)
        found = None
        for label, key in [*self._fixed, *self._current()]:
            if hmac.compare_digest(key, digest):
                found = label
        return found

    def _current(self) -> list[tuple[str, bytes]]:
        if self._file is None:
            return []
        try:
            stat = self._file.stat()
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp != self._stamp:
                keys = read_api_keys(self._file)
                self._from_file = [(f"file-{at + 1}", _digest(key.encode())) for at, key in enumerate(keys)]
                self._stamp = stamp
        except (OSError, ConfigError) as error:
            if self._from_file:
                log.error("the keys of %s are not accepted until the file can be read again: %s", self._file, error)
            self._from_file, self._stamp = [], None
        return self._from_file


class Auth:
    """Asks for a Bearer or x-api-key header when there are keys; a browser's preflight passes by `is_preflight`."""

    def __init__(self, app: ASGIApp, keys: Keys, is_preflight: Callable[[Scope], bool]) -> None:
        self._app = app
        self._keys = keys
        self._is_preflight = is_preflight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        if self._keys.required and scope["path"] not in OPEN_PATHS and not self._is_preflight(scope):
            label = self._keys.label(_offered(scope))
            if label is None:
                text = "A valid API key is required: send 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
                error = ApiError(401, text, "authentication_error", code="invalid_api_key")
                record_of(scope).error = error.code
                await response_of(error)(scope, receive, send)
                return
            record_of(scope).key = label
        await self._app(scope, receive, send)


def _offered(scope: Scope) -> bytes:
    headers = Headers(scope=scope)
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip().encode("latin-1")
    return headers.get("x-api-key", "").encode("latin-1")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
