"""Tokenizers rebuilt from GGUF metadata give the ids that llama.cpp gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.gguf_files import TOKENS, TYPES, write_gguf
from tests.goldens.corpus import TEXTS
from tfjax.checkpoints import open_checkpoint
from tfjax.checkpoints.gguf_index import GgufFile, GgufIndex, GgufVocabulary, open_gguf
from tfjax.text import gguf_tokenizer
from tfjax.text.pieces import UnsupportedTokenizer
from tfjax.text.tokenizer import SpecialTokens, Tokenizer

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent.parent / "goldens" / "tokenizer.json").read_text())
# transformers' GGUF conversion leaves numerals such as the superscript two unsplit; the model's own tokenizer does not.
TRANSFORMERS_DIFFERS = {"9"}


class Vocabulary(GgufFile):
    """A GGUF file in memory, with a tokenizer and nothing else."""

    def __init__(self, metadata: dict[str, Any], vocabulary: GgufVocabulary) -> None:
        super().__init__(Path("memory.gguf"), GgufIndex(metadata, len(vocabulary.tokens), ()))
        object.__setattr__(self, "kept", vocabulary)

    def vocabulary(self) -> GgufVocabulary:
        kept: GgufVocabulary = self.__dict__["kept"]
        return kept


def build(model: str, pre: str | None, vocabulary: GgufVocabulary, **metadata: Any) -> Tokenizer:
    given = {"tokenizer.ggml.model": model, **metadata} | ({"tokenizer.ggml.pre": pre} if pre else {})
    return Tokenizer(gguf_tokenizer.build(Vocabulary(given, vocabulary)), SpecialTokens())


def small(**changes: Any) -> GgufVocabulary:
    arrays = {"tokens": list(TOKENS), "types": list(TYPES), "scores": [], "merges": ["a b"], **changes}
    return GgufVocabulary(**arrays)


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf: Path) -> GgufVocabulary:
    return open_gguf(smollm2_gguf).vocabulary()


@pytest.mark.weights
def test_smollm2_equals_llama_cpp(smollm2: GgufVocabulary) -> None:
    tokenizer = build("gpt2", "smollm", smollm2)
    for text, wanted in zip(TEXTS, GOLDEN["smollm"]["llama.cpp"], strict=True):
        assert tokenizer.encode(text) == wanted, text
        assert tokenizer.decode(wanted, hide_special=False) == text


@pytest.mark.parametrize("pre", sorted(GOLDEN["crossing"]["llama.cpp"]))
def test_pre_tokenizers_equal_llama_cpp(pre: str) -> None:
    """With a vocabulary whose merges cross every border, so that a wrong split shows."""
    arrays = GOLDEN["crossing"]["vocabulary"]
    tokenizer = build("gpt2", pre, GgufVocabulary(arrays["tokens"], arrays["types"], [], arrays["merges"]))
    for text, wanted in zip(TEXTS, GOLDEN["crossing"]["llama.cpp"][pre], strict=True):
        assert tokenizer.encode(text) == wanted, text
        assert tokenizer.decode(wanted) == text


def test_lfm2_is_split_as_llama_3_is() -> None:
    arrays = GOLDEN["crossing"]["vocabulary"]
    tokenizer = build("gpt2", "lfm2", GgufVocabulary(arrays["tokens"], arrays["types"], [], arrays["merges"]))
    assert [tokenizer.encode(text) for text in TEXTS] == GOLDEN["crossing"]["llama.cpp"]["llama-bpe"]


@pytest.mark.weights
def test_special_tokens_as_text_equal_llama_cpp(smollm2: GgufVocabulary) -> None:
    tokenizer = build("gpt2", "smollm", smollm2)
    for text, wanted in zip(TEXTS, GOLDEN["smollm"]["llama.cpp_plain"], strict=True):
        assert tokenizer.encode(text, parse_special=False) == wanted, text


def test_where_the_other_engines_differ_from_each_other() -> None:
    assert set(GOLDEN["smollm"]["transformers_differs"]) == TRANSFORMERS_DIFFERS
    assert GOLDEN["sentencepiece"]["sentencepiece_differs"] == {}


def test_every_supported_pre_tokenizer_is_proved_and_differs() -> None:
    golden = GOLDEN["crossing"]["llama.cpp"]
    assert set(golden) == set(gguf_tokenizer.PRE_TOKENIZERS)
    ids = list(golden.values())
    assert all(one != other for index, one in enumerate(ids) for other in ids[index + 1 :])


def test_sentencepiece_equals_llama_cpp() -> None:
    arrays = GOLDEN["sentencepiece"]["vocabulary"]
    vocabulary = GgufVocabulary(arrays["tokens"], arrays["types"], arrays["scores"], [])
    tokenizer = build("llama", None, vocabulary)
    for text, wanted in zip(TEXTS, GOLDEN["sentencepiece"]["llama.cpp"], strict=True):
        assert tokenizer.encode(text) == wanted, text
        assert tokenizer.decode(wanted) == (" " + text if text else "")


def test_space_prefix_is_an_option() -> None:
    arrays = GOLDEN["sentencepiece"]["vocabulary"]
    vocabulary = GgufVocabulary(arrays["tokens"], arrays["types"], arrays["scores"], [])
    without = build("llama", None, vocabulary, **{"tokenizer.ggml.add_space_prefix": False})
    assert without.decode(without.encode("the fox")) == "the fox"


def test_kinds_of_tokens() -> None:
    # normal, unknown, control, user defined, unused, byte
    vocabulary = small(tokens=["a", "<u>", "<c>", "<d>", "<x>", "b"], types=[1, 2, 3, 4, 5, 1], merges=[])
    tokenizer = build("gpt2", "smollm", vocabulary)
    assert [tokenizer.is_special(token) for token in range(6)] == [False, True, True, False, False, False]
    assert tokenizer.encode("a<c><d>b") == [0, 2, 3, 5]
    assert tokenizer.decode([0, 2, 3, 5]) == "a<d>b"


@pytest.mark.parametrize(
    ("metadata", "wanted"),
    [
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}, False),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe"}, True),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "lfm2"}, True),
        ({"tokenizer.ggml.model": "llama"}, True),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.add_bos_token": False}, False),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.add_bos_token": True}, True),
    ],
)
def test_adds_bos(metadata: dict[str, Any], wanted: bool) -> None:
    assert gguf_tokenizer.adds_bos(Vocabulary(metadata, small())) is wanted


@pytest.mark.parametrize(
    ("model", "pre", "vocabulary", "message"),
    [
        ("gpt2", "qwen2", small(), r"pre is 'qwen2'; supported are gpt-2, lfm2, llama-bpe, smollm"),
        ("gpt2", None, small(), r"pre is 'default'"),
        ("bert", None, small(), r"model is 'bert'; supported are 'gpt2' and 'llama'"),
        ("gpt2", "smollm", small(tokens=[], types=[]), "has no tokenizer"),
        ("gpt2", "smollm", small(types=[1]), "6 tokens, but 1 token types"),
        ("gpt2", "smollm", small(tokens=["a", "b", "c", "ab", "d", "d"]), "token 'd' is in the vocabulary twice"),
        ("gpt2", "smollm", small(merges=["ab"]), "merges holds 'ab'; expected two tokens"),
        ("gpt2", "smollm", small(merges=["a z"]), "the merges do not fit the vocabulary"),
        ("llama", None, small(), "6 tokens, but 0 scores"),
    ],
)
def test_refused(model: str, pre: str | None, vocabulary: GgufVocabulary, message: str) -> None:
    with pytest.raises(UnsupportedTokenizer, match=message):
        build(model, pre, vocabulary)


def test_from_a_written_file(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf"))
    file = open_gguf(checkpoint.path)
    assert gguf_tokenizer.build(file).encode("abc", add_special_tokens=False).ids == [4, 5]
