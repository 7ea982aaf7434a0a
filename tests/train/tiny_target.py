"""A corpus of generated functions, and settings of a run on it that takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjax.train import corpus_tokens
from tfjax.train.corpus import SourceFile, Sources, is_held_out
from tfjax.train.harvest import Corpus, Function
from tfjax.train.target_settings import Settings, parser, read_settings

WORDS = ("alpha", "beta", "gamma", "delta", "value", "result", "count", "index")
TINY_FLAGS = (
    *("--vocab", "320", "--hidden", "32", "--layers", "2", "--attention", "1", "--heads", "2", "--kv-heads", "1"),
    *("--inner", "48", "--experts", "4", "--expert-inner", "16", "--length", "16", "--batch", "4", "--context", "128"),
    *("--steps", "12", "--steps-per-call", "2", "--save-every", "4", "--learning-rate", "0.01"),
)


def function(number: int) -> Function:
    word, other = WORDS[number % len(WORDS)], WORDS[number * 3 % len(WORDS)]
    head = f'def {word}_{number}({other}):\n    """Returns the {word} of {other}."""'
    return Function(
        f"library.part{number}", f"{word}_{number}", f"Returns the {word} of {other}.", head, _body(head, other)
    )


def _body(head: str, word: str) -> str:
    return f"{head}\n    if {word} is None:\n        return 0\n    return {word} + 1\n"


FUNCTIONS = tuple(function(number) for number in range(200))
SOURCES = Sources(
    files=(
        *(SourceFile(one.module, 3 * one.source) for one in FUNCTIONS),
        SourceFile("library.tokens", 'TURN_END, END = "<|im_end|>", "<|endoftext|>"\n' * 9),
    ),
    versions={"python": "3"},
    licenses={"python": "PSF-2.0"},
    left_out={},
)
assert any(is_held_out(one.module) for one in FUNCTIONS)


@pytest.fixture
def tiny_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's library is these functions."""
    monkeypatch.setattr(corpus_tokens, "read_sources", lambda packages: SOURCES)
    corpus = Corpus(FUNCTIONS, FUNCTIONS, (), {})
    monkeypatch.setattr(corpus_tokens, "harvest", lambda held_out, packages: corpus)


def words(base: Path, output: str = "out", *flags: str) -> list[str]:
    """The command line of a tiny run; all runs of `base` share a corpus. The last of a flag counts."""
    return ["--output", str(base / output), "--corpus", str(base / "corpus"), *TINY_FLAGS, *flags]


def settings(base: Path, output: str = "out", *flags: str) -> Settings:
    return read_settings(parser().parse(words(base, output, *flags)))
