"""What a check found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `state` is ok, warning or failed; `remedy` says what to do about the latter two."""

    what: str
    state: str
    found: str
    remedy: str | None = None
