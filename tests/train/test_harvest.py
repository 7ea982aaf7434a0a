from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfjax.train.harvest import FUNCTION_CHARS, PASSAGE_CHARS, Corpus, harvest
from tfjax.train.held_out import HeldOut, digest

NOTHING = HeldOut(frozenset(), frozenset())
MODULE = '''"""{0}"""

import functools


class Holder:
    """{0}"""

    @functools.cache
    def documented(self, one, two):
        """Say what it does,
        in two lines."""
        three = one + two  # a comment
        return three * self.documented(three, two)


def plain(first, second):
    return [first, second, first + second, first - second, first * second, "and so on"]


def only_docstring():
    """A function that is nothing but its docstring, and long enough to count as one by its size."""


def tiny(): return 1
'''
PARAGRAPH = "A paragraph about nothing in particular that goes on for a while. " * 5


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of its own, in place of Python's library."""
    root = tmp_path / "library"
    (root / "tests").mkdir(parents=True)
    (root / "module.py").write_text(MODULE.format(PARAGRAPH), encoding="utf-8")
    (root / "tests" / "test_module.py").write_text(
        "def only_in_tests(argument):\n    return argument, argument, argument, argument, argument\n"
    )
    (root / "broken.py").write_text("def broken(:\n")
    (root / "binary.py").write_bytes(b"\xff\xfe\x00")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(root))
    return root


def taken(held_out: HeldOut = NOTHING) -> Corpus:
    return harvest(held_out, packages=())


def test_functions_are_found_whole_and_dedented(package: Path) -> None:
    functions = {function.name: function for function in taken().functions}
    assert set(functions) == {"documented", "plain", "only_docstring"}
    documented = functions["documented"]
    assert documented.source.startswith('@functools.cache\ndef documented(self, one, two):\n    """Say')
    assert documented.source.endswith("return three * self.documented(three, two)")
    assert documented.head.endswith('in two lines."""')
    assert documented.docstring == "Say what it does,\nin two lines."
    assert documented.module == "module"
    assert (functions["plain"].docstring, functions["plain"].head) == ("", "")


def test_heads_are_of_functions_with_a_body(package: Path) -> None:
    assert [function.name for function in taken().documented] == ["documented"]


def test_what_is_held_out_is_left_out(package: Path) -> None:
    assert "plain" not in {one.name for one in taken(HeldOut(frozenset({digest("plain")}), frozenset())).functions}
    said = frozenset({digest("say what it does in two lines")})
    assert "documented" not in {one.name for one in taken(HeldOut(frozenset(), said)).functions}


def test_passages_are_whole_paragraphs_of_a_readable_size(package: Path) -> None:
    passages = taken().passages
    assert passages[0].text == PARAGRAPH.strip()
    assert passages[0].title == "the class Holder of module"  # the same text as the module's counts once
    for passage in passages:
        assert PASSAGE_CHARS[0] <= len(passage.text) <= PASSAGE_CHARS[1]


def test_the_same_sources_give_the_same_corpus(package: Path) -> None:
    before = taken()
    assert taken() == before
    (package / "module.py").write_text(MODULE.format(PARAGRAPH).replace("so on", "so forth"), encoding="utf-8")
    assert taken().sha256 != before.sha256


@pytest.mark.slow
def test_versions_are_named() -> None:
    corpus = harvest(NOTHING, packages=("packaging", "no_such_package"))
    assert set(corpus.versions) == {"python", "packaging"}
    assert corpus.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert len(corpus.documented) > 3000
    assert len(corpus.passages) > 500
    assert any(passage.title == "the Python package packaging" for passage in corpus.passages)
    for function in corpus.functions:
        assert FUNCTION_CHARS[0] <= len(function.source) <= FUNCTION_CHARS[1]


def test_nothing_is_read_of_a_module_that_is_skipped(package: Path) -> None:
    (package / "other.py").write_text(MODULE.format(PARAGRAPH.upper()).replace("plain", "other"), encoding="utf-8")
    found = harvest(NOTHING, packages=(), skips=lambda module: module == "module")
    assert {one.module for one in found.functions} == {"other"}
    assert PARAGRAPH.strip() not in {passage.text for passage in found.passages}
    assert {one.module for one in taken().functions} == {"module", "other"}
