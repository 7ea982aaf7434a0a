"""Strict JSON."""

from __future__ import annotations

import contextlib
import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.helpers import COMPLETIONS, error_of
from tfjax.server.errors import ApiError
from tfjax.server.jsonbody import MAX_DEPTH, parse

BAD_BODIES = {
    "empty": b"",
    "half": b'{"prompt": "hi"',
    "two": b'{"prompt": "hi"} {}',
    "text": b"hello",
    "nan in a list": b'{"prompt": "hi", "x": [[NaN]]}',
    "infinity alone": b"-Infinity",
    "utf-16": '{"prompt": "hi"}'.encode("utf-16"),
    "bad utf-8": b'{"prompt": "\xff"}',
    "surrogate": b'{"prompt": "\\ud800"}',
    "surrogate key": b'{"prompt": "hi", "\\udfff": 1}',
    "doubled key": b'{"prompt": "hi", "prompt": "ho"}',
    "doubled key within": b'{"prompt": "hi", "x": {"a": 1, "a": 2}}',
    "deep list": b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep object": b'{"prompt": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "unclosed depth": b"[" * 1_000_000,
    "huge integer": b'{"prompt": "hi", "x": ' + b"9" * 100_000 + b"}",
    "huge float": b'{"prompt": "hi", "x": 0.' + b"9" * 100_000 + b"}",
    "huge exponent": b'{"prompt": "hi", "x": 1e999999999}',
    "control character": b'{"prompt": "a\x00b"}',
    "byte order mark": b'\xef\xbb\xbf{"prompt": "hi"}',
    "a list": b"[1]",
    "a number": b"1",
    "null": b"null",
}


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_bad_bodies_are_400(client: httpx.AsyncClient, name: str) -> None:
    headers = {"content-type": "application/json"}
    reply = await client.post(COMPLETIONS, content=BAD_BODIES[name], headers=headers)
    assert reply.status_code == 400, reply.text
    assert error_of(reply)["type"] == "invalid_request_error"
    assert "Traceback" not in reply.text


def test_depth_counts_brackets_outside_texts_only() -> None:
    assert parse(b'{"a": "[[[[' + b"[" * 100 + b'\\"[[[["}')["a"].startswith("[[[[")
    parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(ApiError, match="nests deeper"):
        parse(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


@pytest.mark.alone
@pytest.mark.parametrize("body", [b'"\\"' * 700_000, b'"' + b'\\"' * 1_000_000, b'{"a":"' + b"x" * 4_000_000 + b'"}'])
def test_time_grows_with_the_size_only(body: bytes) -> None:
    started_s = time.monotonic()
    with contextlib.suppress(ApiError):
        parse(body)
    assert time.monotonic() - started_s < 2


def test_whole_surrogate_pairs_are_text() -> None:
    assert parse(b'["\\ud83d\\ude00"]') == ["😀"]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(ApiError):
        parse(body)
