"""Reads a JSON body strictly: bounded depth, no NaN, no doubled keys, no half surrogates; types are msgspec's."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from tfjax.server.errors import ApiError, bad_request

MAX_DEPTH = 32
MAX_NUMBER_CHARS = 1024

_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PATH = re.compile(r"^(?P<what>.*) - at `\$(?P<key>key in )?\.?(?P<path>.*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>\w+)`")


def parse(body: bytes) -> Any:
    """JSON text as plain objects; 400 for everything that two parsers could read differently."""
    _check_depth(body)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise bad_request("The body is not valid UTF-8.", code="invalid_json") from None
    numbers = _Numbers()
    try:
        value = json.loads(
            text,
            object_pairs_hook=_pairs,
            parse_int=numbers.integer,
            parse_float=numbers.float,
            parse_constant=numbers.float,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise bad_request(f"The body is not valid JSON ({where}).", code="invalid_json") from None
    if not numbers.finite:
        raise bad_request("The body holds a number that is not finite.", code="invalid_json")
    if _SURROGATE.search(body):
        _check_surrogates(value)
    return value


def convert[T](value: Any, kind: type[T]) -> T:
    """A typed request; 400 naming the field that does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from None


def _named(text: str) -> ApiError:
    found = _PATH.match(text)
    what, path = (found["what"], found["path"]) if found else (text, "")
    missing = _MISSING.match(what)
    if missing:
        path = f"{path}.{missing['name']}" if path else missing["name"]
        return bad_request(f"The field '{path}' is required.", param=path, code="missing_field")
    if not path:
        return bad_request(f"The body does not fit: {what}.", code="invalid_type")
    return bad_request(f"The field '{path}' does not fit: {what}.", param=path, code="invalid_value")


def _check_depth(body: bytes) -> None:
    depth = 0
    for token in _BRACKETS.finditer(body):
        first = body[token.start()]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise bad_request(f"The body nests deeper than {MAX_DEPTH} levels.", code="invalid_json")
        elif first in b"]}":
            depth -= 1


def _check_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise bad_request(
            "The body holds half a surrogate pair, which is not text in any encoding.", code="invalid_json"
        ) from None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise bad_request(f"The key '{key[:64]}' stands twice.", param=key[:64], code="invalid_json")
            seen.add(key)
    for key, value in pairs:
        if type(value) is float and not math.isfinite(value):
            raise bad_request(
                f"The field '{key[:64]}' is not a finite number; JSON has no NaN and no Infinity.",
                param=key[:64],
                code="invalid_value",
            )
    return fields


class _Numbers:
    """Reads numbers; `finite` is False once one was NaN, infinite or beyond the range of floats."""

    def __init__(self) -> None:
        self.finite = True

    def integer(self, text: str) -> int:
        _check_digits(text)
        return int(text)

    def float(self, text: str) -> float:
        _check_digits(text)
        value = float(text)
        self.finite = self.finite and math.isfinite(value)
        return value


def _check_digits(text: str) -> None:
    if len(text) > MAX_NUMBER_CHARS:
        raise bad_request(f"The body holds a number of {len(text)} characters.", code="invalid_json")
