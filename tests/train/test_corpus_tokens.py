"""A corpus on disk: what is learned and held out, and that another one is not taken for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.train.tiny_target import SOURCES, tiny_sources
from tfjax.train.corpus import Sources
from tfjax.train.corpus_tokens import RECORD, TOKENS, CorpusTokens, UnusableCorpus, open_corpus, read_corpus
from tfjax.train.target_tokenizer import END, START, TURN_END

__all__ = ["tiny_sources"]
pytestmark = pytest.mark.usefixtures("tiny_sources")


def nothing(phase: str, fraction: float) -> None:
    """Progress that nobody watches."""


def made(directory: Path) -> CorpusTokens:
    return open_corpus(directory, 300, [], nothing)


def documents(tokens: list[int]) -> list[list[int]]:
    ends = [index + 1 for index, token in enumerate(tokens) if token == END]
    return [tokens[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]


def test_every_file_is_a_document_of_its_part(tmp_path: Path) -> None:
    found = made(tmp_path)
    for tokens, name in ((found.learned, "learned"), (found.held_out, "held_out")):
        parts = documents(tokens.tolist())
        counts = found.record["documents"][name]
        assert all(part[0] == START for part in parts)
        assert len(parts) == counts["files"] + counts["chats"]
        assert sum(TURN_END in part for part in parts) == counts["chats"]
        assert len(tokens) == found.record["tokens"][name]
    assert found.record["documents"]["learned"]["chats"] > 10
    held_out = [file for file in SOURCES.files if file.held_out]
    assert found.record["documents"]["held_out"]["files"] == len(held_out)
    assert found.record["documents"]["learned"]["files"] == len(SOURCES.files) - len(held_out)
    assert (found.vocab, found.record["licenses"]) == (300, {"python": "PSF-2.0"})


def test_the_same_sources_give_the_same_bytes_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "a")
    monkeypatch.setattr("time.time", lambda: 1e9)
    made(tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_what_lies_there_is_read_without_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(tmp_path)
    monkeypatch.setattr("tfjax.train.corpus_tokens.read_sources", None)
    assert made(tmp_path).learned.tolist() == first.learned.tolist()


def test_another_corpus_is_not_taken_for_it(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(UnusableCorpus, match="asked_vocab 300, and 301 is asked for"):
        open_corpus(tmp_path, 301, [], nothing)
    with pytest.raises(UnusableCorpus, match=r"packages \[\], and \['jax'\] is asked for"):
        open_corpus(tmp_path, 300, ["jax"], nothing)


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableCorpus, match="holds no corpus"):
        read_corpus(tmp_path)
    made(tmp_path)
    record = json.loads((tmp_path / RECORD).read_text())
    record["tokens"]["learned"] += 1
    (tmp_path / RECORD).write_text(json.dumps(record))
    with pytest.raises(UnusableCorpus, match="does not fit its record"):
        read_corpus(tmp_path)
    whole = (tmp_path / TOKENS).read_bytes()
    for damaged in (whole[:-100], whole[:200] + b"\0" + whole[201:], b"nothing"):
        (tmp_path / TOKENS).write_bytes(damaged)
        with pytest.raises(UnusableCorpus, match="remove"):
            read_corpus(tmp_path)


def test_no_sources_at_all_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfjax.train.corpus_tokens.read_sources", lambda packages: Sources((), {}, {}, {}))
    with pytest.raises(UnusableCorpus, match="add packages with --also"):
        made(tmp_path)
