"""A corpus as token ids on disk: made once, read by every run, and portable to machines with other sources."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tfjax.checkpoints.cache import write_atomically
from tfjax.train.corpus import SourceFile, is_held_out, read_sources
from tfjax.train.corpus_chats import chats
from tfjax.train.harvest import harvest
from tfjax.train.held_out import load_held_out
from tfjax.train.target_tokenizer import encode_documents, train_tokenizer, write_tokenizer

RECORD, TOKENS = "corpus.json", "tokens.safetensors.gz"
VERSION = 1
CHAT_SHARE = 0.08
PARTS = ("learned", "held_out")

type Progress = Callable[[str, float], None]


class UnusableCorpus(ValueError):
    """A directory that holds no corpus, a damaged one, or another than was asked for. The message says what to do."""


@dataclass(frozen=True, slots=True)
class CorpusTokens:
    """Documents laid end to end, each between the start token and the end token.

    Attributes:
        learned, held_out: token ids. Shape: uint16 [n].
        record: what they were made from.
    """

    directory: Path
    learned: NDArray[np.uint16]
    held_out: NDArray[np.uint16]
    record: dict[str, Any]

    @property
    def vocab(self) -> int:
        return int(self.record["vocab"])


def open_corpus(directory: Path, vocab: int, packages: Sequence[str], progress: Progress) -> CorpusTokens:
    """Read the corpus in the directory, or make it there.

    Raises:
        UnusableCorpus: what lies there is damaged, or was made from other packages or with another vocabulary.
        MissingPackage: a package is not installed, where the corpus has to be made.
    """
    asked = {"version": VERSION, "asked_vocab": vocab, "packages": list(packages)}
    if not (directory / RECORD).exists():
        make_corpus(directory, asked, progress)
    found = read_corpus(directory)
    for name, wanted in asked.items():
        if found.record.get(name) != wanted:
            raise UnusableCorpus(
                f"{directory} holds a corpus with {name} {found.record.get(name)!r}, and {wanted!r} is asked for; "
                "ask for the same, or give another --corpus"
            )
    return found


def read_corpus(directory: Path) -> CorpusTokens:
    """The corpus in a directory.

    Raises:
        UnusableCorpus: there is none, or it is damaged.
    """
    try:
        record = json.loads((directory / RECORD).read_text(encoding="utf-8"))
        arrays = load(gzip.decompress((directory / TOKENS).read_bytes()))
        learned, held_out = (arrays[name] for name in PARTS)
        counted = [record["tokens"][name] for name in PARTS]
    except (OSError, EOFError, zlib.error, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UnusableCorpus(f"{directory} holds no corpus ({error}); remove it to have it made anew") from error
    if counted != [len(learned), len(held_out)]:
        raise UnusableCorpus(f"{directory / TOKENS} does not fit its record; remove {directory} to have it made anew")
    return CorpusTokens(directory, learned, held_out, record)


def make_corpus(directory: Path, asked: Mapping[str, Any], progress: Progress) -> None:
    """Read sources, learn a vocabulary from those that are not held out, and write both and the token ids.

    The record is written last: a directory without it holds nothing that is relied on.
    """
    progress("reading sources", 0.0)
    packages = asked["packages"]
    sources = read_sources(packages)
    # The functions of HumanEval stay out of chats as they stay out of prompts.
    documented = harvest(load_held_out(), packages).documented
    code: dict[str, list[SourceFile]] = {
        name: [file for file in sources.files if file.held_out == held_out]
        for name, held_out in zip(PARTS, (False, True), strict=True)
    }
    progress("learning a vocabulary", 0.2)
    learned = [file.text for file in code["learned"]]
    if not learned:
        raise UnusableCorpus("there are no sources to learn from; add packages with --also")
    backend = train_tokenizer(learned, asked["asked_vocab"])
    arrays, counts = {}, {}
    for number, (name, files) in enumerate(code.items()):
        progress("writing token ids", 0.5 + 0.25 * number)
        functions = [one for one in documented if is_held_out(one.module) == bool(number)]
        chars = sum(len(file.text) for file in files)
        talks = chats(functions, round(CHAT_SHARE * chars))
        documents = encode_documents(backend, [file.text for file in files], parse_special=False)
        documents += encode_documents(backend, talks, parse_special=True)
        arrays[name] = _laid_out(documents)
        counts[name] = {"files": len(files), "characters": chars, "chats": len(talks)}
    directory.mkdir(parents=True, exist_ok=True)
    write_tokenizer(directory, backend)
    write_atomically(directory / TOKENS, gzip.compress(save(arrays), mtime=0))
    record = {
        **asked,
        "vocab": backend.get_vocab_size(),
        "tokens": {name: len(array) for name, array in arrays.items()},
        "documents": counts,
        "left_out": sources.left_out,
        "versions": sources.versions,
        "licenses": sources.licenses,
        "sha256": sources.sha256,
    }
    write_atomically(directory / RECORD, (json.dumps(record, indent=1) + "\n").encode())


def _laid_out(documents: list[list[int]]) -> NDArray[np.uint16]:
    """All documents in a shuffled order that is always the same."""
    random.Random(0).shuffle(documents)  # noqa: S311  (no secret)
    ids = [token for document in documents for token in document]
    return np.array(ids, np.uint16)
