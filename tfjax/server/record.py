"""What the log line of a request needs, gathered while it is served."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import cast

from starlette.types import Scope

from tfjax.engine.api import Finished
from tfjax.server.plan import Plan

_KEY = "tfjax.record"


@dataclass(slots=True)
class Record:
    """One request. `key` is the label of its API key; `prompt` and `text` stay None unless they may be logged."""

    id: str
    key: str = "-"
    status: int = 0
    gone: bool = False
    error: str | None = None
    plan: Plan | None = None
    prompt: str | None = None
    text: str | None = None
    finished: list[Finished] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)


def start_record(scope: Scope, id: str) -> Record:
    record = Record(id)
    scope[_KEY] = record
    return record


def record_of(scope: Scope) -> Record:
    return cast("Record", scope[_KEY])
