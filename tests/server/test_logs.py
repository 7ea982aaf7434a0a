"""Log lines."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest

from tfjax.server.logs import JsonLines, Stderr, TextLines


def record(message: str, fields: dict[str, object] | None = None, *, error: bool = False) -> logging.LogRecord:
    info = None
    if error:
        try:
            raise LookupError("lost")
        except LookupError:
            info = sys.exc_info()
    made = logging.LogRecord("tfjax.request", logging.INFO, "f.py", 1, message, None, info)
    if fields is not None:
        made.fields = fields
    return made


def test_text() -> None:
    line = TextLines().format(record("request", {"id": "a", "route": "GET /x", "status": 200}))
    assert line.endswith(' INFO request id=a route="GET /x" status=200')


def test_nothing_in_a_field_breaks_the_line() -> None:
    line = TextLines().format(record("request", {"route": 'GET /\r\n"\x1b[2J\u2028', "b": "x=y"}))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    assert TextLines().format(record("request", {"a": "b\n\x1b"})).endswith(r'a="b\n\u001b"')
    assert 'b="x=y"' in line


def test_json() -> None:
    line = JsonLines().format(record("request", {"id": "a\n", "out": 3}, error=True))
    assert len(line.splitlines()) == 1
    entry = json.loads(line)
    assert (entry["id"], entry["out"], entry["level"], entry["message"]) == ("a\n", 3, "info", "request")
    assert "LookupError: lost" in entry["exception"]


def test_an_exception_follows_the_line() -> None:
    assert "LookupError: lost" in TextLines().format(record("failed", error=True))


def test_lines_go_where_stderr_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = Stderr()
    later = io.StringIO()
    monkeypatch.setattr(sys, "stderr", later)
    handler.emit(record("above the bar"))
    assert later.getvalue() == "above the bar\n"
