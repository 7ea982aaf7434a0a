"""The kinds of values that settings take, each with its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Any text but the empty one. `longest` is in characters; `visible_ascii` is what fits into a header unquoted."""

    metavar: str | None = None
    longest: int = 4096
    visible_ascii: bool = False

    def parse(self, text: str) -> str:
        return self.check(text)

    def check(self, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty; give a value or leave the setting out")
        if len(value) > self.longest:
            raise ValueError(f"is longer than {self.longest} characters; give a shorter one")
        if not value.isprintable():
            raise ValueError("has control characters; leave them out")
        if self.visible_ascii and not (value.isascii() and " " not in value):
            raise ValueError("has spaces or other characters than ASCII; use letters, digits and signs")
        return value


@dataclass(frozen=True, slots=True)
class HostName:
    """A host name or address, without scheme, port or path."""

    metavar: str | None = "HOST"

    def parse(self, text: str) -> str:
        return self.check(text)

    def check(self, value: str) -> str:
        if not value or not value.isascii() or set(value) & set("/@?# ") or not value.isprintable():
            raise ValueError("is no host name or address; give one such as 127.0.0.1, without scheme or path")
        return value


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a web page: scheme and host, perhaps a port; * is any."""

    metavar: str | None = "ORIGIN"

    def parse(self, text: str) -> str:
        return self.check(text)

    def check(self, value: str) -> str:
        scheme, mark, host = value.partition("://")
        if value != "*" and not (scheme.isalpha() and mark and host and not set(host) & set("/?# ,")):
            raise ValueError("is no origin; give one such as https://chat.example, without a path")
        return value


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `low` to `high`, both included. `zero` says what to give instead of 0."""

    low: int
    high: int
    metavar: str | None = "N"
    zero: str | None = None

    def parse(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"is not a whole number; give one from {self.low} to {self.high}") from None
        return self.check(value)

    def check(self, value: int) -> int:
        if not self.low <= value <= self.high:
            instead = self.zero if value == 0 and self.zero else "give a number in that range"
            raise ValueError(f"is not within {self.low} to {self.high}; {instead}")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number from `low` to `high`, both included."""

    low: float
    high: float
    metavar: str | None = "X"

    def parse(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"is not a number; give one from {self.low:g} to {self.high:g}") from None
        return self.check(value)

    def check(self, value: float) -> float:
        if not self.low <= value <= self.high:  # false for nan, too
            raise ValueError(f"is not within {self.low:g} to {self.high:g}; give a number in that range")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words. `names` gives each accepted spelling its meaning."""

    names: Mapping[str, str]

    @property
    def metavar(self) -> str:
        return "{" + ",".join(dict.fromkeys(self.names.values())) + "}"

    def parse(self, text: str) -> str:
        if text not in self.names:
            raise ValueError(f"is none of {', '.join(self.names)}; give one of them")
        return self.names[text]

    def check(self, value: str) -> str:
        if value not in self.names.values():
            raise ValueError(f"is none of {', '.join(dict.fromkeys(self.names.values()))}; give one of them")
        return value
