"""Reads a suite of prompts."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
LICENSE = HERE.parent / "LICENSE"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation to be answered.

    Attributes:
        kind: what the prompt stands for.
        messages: in the form of chat completions.
    """

    kind: str
    messages: tuple[dict[str, str], ...]


def load_suite(name: str) -> list[Prompt]:
    """Prompts of benchmarks/suites/NAME.toml, in order."""
    with (HERE / "suites" / f"{name}.toml").open("rb") as file:
        entries = tomllib.load(file)["prompt"]
    return [_prompt(entry) for entry in entries]


def _prompt(entry: dict[str, str | int]) -> Prompt:
    wanted = int(entry.get("repeat_license", 0))
    text = LICENSE.read_text(encoding="utf-8")
    quoted = (text * (1 + wanted // len(text)))[:wanted]
    messages = [{"role": "system", "content": str(entry["system"])}] if "system" in entry else []
    messages.append({"role": "user", "content": f"{quoted}\n\n{entry['user']}".strip()})
    return Prompt(str(entry["kind"]), tuple(messages))
