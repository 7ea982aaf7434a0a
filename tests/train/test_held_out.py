from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tfjax.train.corpus import is_held_out
from tfjax.train.harvest import Function
from tfjax.train.held_out import (
    DIGESTS,
    HeldOut,
    Problem,
    digests_of,
    held_out_modules,
    load_held_out,
    read_problems,
    sentences,
)

PROBLEM = Problem(
    "has_pairs",
    'from typing import List\n\n\ndef has_pairs(numbers: List[int]) -> bool:\n    """ Tell whether any two of the '
    'numbers\n    are equal to each other. Short one.\n    >>> has_pairs([1, 2, 1])\n    True\n    """\n',
)


def function(name: str = "f", docstring: str = "") -> Function:
    return Function("module", name, docstring, "", "")


@pytest.mark.parametrize(
    ("name", "docstring", "covered"),
    [
        ("has_pairs", "", True),
        ("other", "Something else.", False),
        ("other", "First this.\n\nTell whether any two of the numbers are equal to each other.", True),
        ("other", "TELL whether any two of the\n  numbers are equal, to each other!", True),
        ("other", "Tell whether any two of the numbers are equal.", False),
        ("other", "Short one.", False),
    ],
)
def test_a_name_or_a_whole_sentence_is_held_out(name: str, docstring: str, covered: bool) -> None:
    assert digests_of([PROBLEM]).covers(function(name, docstring)) is covered


def test_only_digests_are_kept() -> None:
    text = digests_of([PROBLEM]).as_json()
    assert "pairs" not in text
    assert "numbers" not in text
    kept = json.loads(text)
    assert (len(kept["names"]), len(kept["sentences"])) == (1, 2)  # the example is a line of words, too


def test_the_digests_that_come_along_are_of_164_problems() -> None:
    held_out = load_held_out()
    assert len(held_out.names) == 158  # six names occur twice
    assert len(held_out.sentences) > 500
    assert held_out.covers(function("has_close_elements"))
    assert held_out.covers(
        function("f", "For a given number n, find the largest number that divides n evenly, smaller than n")
    )
    assert not held_out.covers(function("urlsplit", "Parse a URL into 5 components."))


def test_sentences_are_plain_words() -> None:
    assert list(sentences("One two, three: four five six seven EIGHT.\n\nnine ten")) == ["four five six seven eight"]


def test_problems_are_read(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(json.dumps({"entry_point": "has_pairs", "prompt": PROBLEM.prompt, "other": 1}) + "\n\n")
    assert read_problems(path) == [PROBLEM]


BAD = gzip.compress(b'{"prompt": 1}', mtime=0), gzip.compress(b"[]", mtime=0)[:12]


@pytest.mark.parametrize("content", [b"", b"plain", *BAD])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "problems.jsonl.gz"
    path.write_bytes(content)
    if not content:
        assert read_problems(path) == []
        return
    with pytest.raises(ValueError, match=r"is no HumanEval.jsonl.gz"):
        read_problems(path)


def test_nothing_held_out_covers_nothing() -> None:
    assert not HeldOut(frozenset(), frozenset()).covers(function("has_pairs", PROBLEM.prompt))


def test_a_target_that_was_trained_here_holds_out_modules(tmp_path: Path) -> None:
    assert held_out_modules(tmp_path) is None
    for record, known in (
        ('{"corpus": {"documents": {"held_out": {"files": 76}}}}', True),
        ('{"corpus": {"documents": {"held_out": {"files": 0}}}}', False),
        ('{"data": {}}', False),
        ("[]", False),
    ):
        (tmp_path / "training.json").write_text(record)
        assert (held_out_modules(tmp_path) is is_held_out) == known


def test_the_code_model_holds_out_modules() -> None:
    skips = held_out_modules(DIGESTS.parent / "lfm2-moe-code")
    assert skips is not None
    names = [f"package.module{number}" for number in range(2000)]
    assert 20 < sum(map(skips, names)) < 60
    assert held_out_modules(DIGESTS.parent / "smollm2-135m-small") is None
