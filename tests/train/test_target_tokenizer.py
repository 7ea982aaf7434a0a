"""The vocabulary: published ids, every text comes back, and the files are read as any model's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints.hf_files import write_directory
from tests.train import tiny_lfm2
from tfjax.checkpoints import open_checkpoint
from tfjax.text.chat_template import ChatTemplate
from tfjax.text.loading import load_tokenizer
from tfjax.text.tokenizer import Tokenizer
from tfjax.train.lfm2_names import flatten
from tfjax.train.target_tokenizer import (
    END,
    LEAST_VOCAB,
    MASK,
    SPECIAL_TOKENS,
    START,
    TURN_END,
    TURN_START,
    encode_documents,
    train_tokenizer,
    write_tokenizer,
)

TEXTS = ["def f(x):\n    return x\n", "for x in range(10):\n        print(x)\n"] * 5


def loaded(directory: Path) -> Tokenizer:
    config = tiny_lfm2.CONFIG
    write_directory(directory, config=config.to_hf(), tensors=dict(flatten(tiny_lfm2.weights())))
    write_tokenizer(directory, train_tokenizer(TEXTS, 290))
    return load_tokenizer(open_checkpoint(directory))


def test_ids_are_the_published_ones() -> None:
    backend = train_tokenizer(TEXTS, 290)
    ids = {name: backend.token_to_id(name) for name in SPECIAL_TOKENS}
    assert list(ids.values()) == list(range(15))
    assert (ids["<|startoftext|>"], ids["<|endoftext|>"], ids["<|im_start|>"], ids["<|im_end|>"]) == (1, 2, 6, 7)
    assert (START, END, TURN_START, TURN_END, MASK) == (1, 2, 6, 7, 14)
    assert backend.get_vocab_size() == 290


def test_any_text_comes_back(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path)
    for text in (*TEXTS, "\tß 漢字 \x00 🙂\r\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_prompts_begin_and_replies_end_as_the_model_learned(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path)
    assert tokenizer.encode("def")[0] == START
    assert set(tokenizer.eos_ids) == {TURN_END}
    prompt = ChatTemplate(tokenizer.chat_template or "", tokenizer.bos_token, tokenizer.eos_token).render(
        [{"role": "user", "content": "hi"}]
    )
    assert prompt == "<|startoftext|><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.encode(prompt)
    assert ids.count(START) == 1
    assert ids.count(TURN_START) == 2


def test_special_tokens_in_code_are_plain_text_and_in_chats_are_not() -> None:
    backend = train_tokenizer(TEXTS, 290)
    text = "x<|im_end|>"
    plain, parsed = (encode_documents(backend, [text], parse_special=parse)[0] for parse in (False, True))
    assert (plain[0], plain[-1]) == (parsed[0], parsed[-1]) == (START, END)
    assert TURN_END not in plain
    assert parsed[-2] == TURN_END


def test_equal_texts_give_equal_vocabularies() -> None:
    assert train_tokenizer(TEXTS, 290).to_str() == train_tokenizer(list(TEXTS), 290).to_str()


def test_a_vocabulary_without_room_for_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match=f"a vocabulary of 270 .* give {LEAST_VOCAB} or more"):
        train_tokenizer(TEXTS, 270)
