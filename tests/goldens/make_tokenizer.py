"""Makes tokenizer.json: token ids of corpus.py by transformers and by llama.cpp.

Run in the environment of environment.py:  PEERS/bin/python tests/goldens/make_tokenizer.py SMOLLM2_GGUF
Besides SmolLM2's own vocabulary: a small byte-level one whose merges cross every border, under each pre-tokenizer name,
by llama.cpp; and a small sentencepiece one by llama.cpp and by sentencepiece.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import sentencepiece
from corpus import CROSSING, TEXTS, TRAINING
from gguf import GGUFWriter
from llama_cpp import Llama
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

COMMAND = "python tests/goldens/make_tokenizer.py SmolLM2-135M-Instruct.Q4_1.gguf"
HERE = Path(__file__).parent
PRE_TOKENIZERS = ("gpt-2", "llama-bpe", "smollm")


def llama_ids(model: Path, special: bool = True) -> list[list[int]]:
    """Ids of every text by llama.cpp, without BOS."""
    engine = Llama(str(model), vocab_only=True, verbose=False)
    return [engine.tokenize(text.encode(), add_bos=False, special=special) for text in TEXTS]


def transformers_ids(model: Path) -> list[list[int]]:
    """Ids of every text by transformers' conversion of the GGUF file, without BOS."""
    tokenizer = AutoTokenizer.from_pretrained(str(model.parent), gguf_file=model.name)
    return [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]


def write_vocabulary(path: Path, model: str, pre: str | None, arrays: dict[str, list]) -> None:
    """A GGUF file that holds a tokenizer and no tensors."""
    writer = GGUFWriter(path, "llama")
    writer.add_vocab_size(len(arrays["tokens"]))
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(arrays["tokens"])
    writer.add_token_types(arrays["types"])
    if arrays.get("scores"):
        writer.add_token_scores(arrays["scores"])
    if arrays.get("merges"):
        writer.add_token_merges(arrays["merges"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def train_crossing() -> dict[str, list]:
    """A byte-level vocabulary trained without any splitting, so that its merges run across every border.

    A splitter that misses or adds a border then gives other ids.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # llama.cpp takes some names, such as <|im_end|>, for special tokens whatever the file says of them.
    texts = [text for text in TEXTS if "<|" not in text]
    backend.train_from_iterator([*texts, *TRAINING, *CROSSING], trainer)
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return {
        "tokens": tokens,
        "types": [3, 3] + [1] * (len(tokens) - 2),
        # The last tokens are out of the merges' reach: only a tokenizer that takes whole words first finds them.
        "merges": [" ".join(pair) for pair in model["merges"][:-100]],
    }


def crossing() -> dict[str, object]:
    arrays = train_crossing()
    ids: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for pre in PRE_TOKENIZERS:
            file = Path(scratch) / f"{pre}.gguf"
            write_vocabulary(file, "gpt2", pre, arrays)
            ids[pre] = llama_ids(file)
    return {"vocabulary": arrays, "llama.cpp": ids}


def train_sentencepiece() -> tuple[sentencepiece.SentencePieceProcessor, dict[str, list]]:
    """A Llama-like vocabulary of 400 pieces with byte fallback, and its GGUF arrays."""
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING),
        model_writer=stream,
        vocab_size=400,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=1.0,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=stream.getvalue())
    kinds = []
    for piece in range(processor.vocab_size()):
        unknown, control, byte = processor.is_unknown(piece), processor.is_control(piece), processor.is_byte(piece)
        kinds.append(2 if unknown else 3 if control else 6 if byte else 1)
    arrays = {
        "tokens": [processor.id_to_piece(piece) for piece in range(processor.vocab_size())],
        "scores": [processor.get_score(piece) for piece in range(processor.vocab_size())],
        "types": kinds,
    }
    return processor, arrays


def main(model: Path) -> None:
    processor, arrays = train_sentencepiece()
    with tempfile.TemporaryDirectory() as scratch:
        small = Path(scratch) / "sentencepiece.gguf"
        write_vocabulary(small, "llama", None, arrays)
        small_ids = llama_ids(small)
    ours = llama_ids(model)
    theirs = transformers_ids(model)
    golden = {
        "command": COMMAND,
        "versions": {
            name: version(name) for name in ("transformers", "tokenizers", "llama-cpp-python", "sentencepiece")
        },
        "smollm": {
            "llama.cpp": ours,
            "transformers_differs": {
                str(index): other for index, (own, other) in enumerate(zip(ours, theirs, strict=True)) if own != other
            },
            "llama.cpp_plain": llama_ids(model, special=False),
        },
        "crossing": crossing(),
        "sentencepiece": {
            "vocabulary": arrays,
            "llama.cpp": small_ids,
            "sentencepiece_differs": {
                str(index): ids
                for index, (text, own) in enumerate(zip(TEXTS, small_ids, strict=True))
                if (ids := processor.encode(text)) != own
            },
        },
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items()]
    (HERE / "tokenizer.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
