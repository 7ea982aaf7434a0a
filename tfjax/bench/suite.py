"""The public prompts that all bench commands use."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

KINDS = ("code", "chat", "edit")
"""The kinds with a prompt for each of several streams."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        kind: what it stands for.
        index: its place among the prompts of its kind.
        text: what is to be continued, or what the user says.
        chat: whether it goes through the model's chat template.
    """

    kind: str
    index: int
    text: str
    chat: bool

    @property
    def route(self) -> str:
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    @property
    def fields(self) -> Mapping[str, Any]:
        """What the request says of it."""
        return {"messages": [{"role": "user", "content": self.text}]} if self.chat else {"prompt": self.text}


@cache
def suite() -> Mapping[str, tuple[Prompt, ...]]:
    """All prompts by kind, in the file's order."""
    table = tomllib.loads(resources.files("tfjax.bench").joinpath("prompts.toml").read_text(encoding="utf-8"))
    return {
        kind: tuple(Prompt(kind, index, text, entry["chat"]) for index, text in enumerate(entry["texts"]))
        for kind, entry in table.items()
    }


def prompt_of(kind: str, index: int) -> Prompt:
    """The prompt of stream `index`; a kind with fewer prompts begins again."""
    prompts = suite()[kind]
    return prompts[index % len(prompts)]
