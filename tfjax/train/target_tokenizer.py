"""The vocabulary of a small target: byte-level BPE with LFM2's special tokens, and the files that carry it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from tfjax.checkpoints.cache import write_atomically

SPECIAL_TOKENS = (
    "<|pad|>",
    "<|startoftext|>",
    "<|endoftext|>",
    "<|fim_pre|>",
    "<|fim_mid|>",
    "<|fim_suf|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|tool_list_start|>",
    "<|tool_list_end|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|tool_response_start|>",
    "<|tool_response_end|>",
    "<|mask|>",
)
"""Ids 0 to 13 are those of the published models; the last one stands for a place to be drafted in a drafter's block."""

PAD, START, END, TURN_START, TURN_END, MASK = (
    SPECIAL_TOKENS.index(name)
    for name in ("<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
)

LEAST_VOCAB = len(SPECIAL_TOKENS) + 256
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab: int) -> tokenizers.Tokenizer:
    """Learn at most `vocab` tokens; the same texts give the same tokens.

    Raises:
        ValueError: fewer tokens are wanted than the bytes and the special tokens need.
    """
    if vocab < LEAST_VOCAB:
        raise ValueError(
            f"a vocabulary of {vocab} cannot hold all bytes and special tokens; give {LEAST_VOCAB} or more"
        )
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        show_progress=False,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    backend.train_from_iterator(texts, trainer)
    start = SPECIAL_TOKENS[START]
    backend.post_processor = processors.TemplateProcessing(single=f"{start} $A", special_tokens=[(start, START)])
    return backend


def write_tokenizer(directory: Path, backend: tokenizers.Tokenizer) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": True,
        "bos_token": SPECIAL_TOKENS[START],
        "eos_token": SPECIAL_TOKENS[TURN_END],
        "pad_token": SPECIAL_TOKENS[PAD],
        "mask_token": SPECIAL_TOKENS[MASK],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    write_atomically(directory / "tokenizer.json", backend.to_str().encode())
    write_atomically(directory / "tokenizer_config.json", (json.dumps(config, indent=2) + "\n").encode())


def encode_documents(backend: tokenizers.Tokenizer, texts: list[str], *, parse_special: bool) -> list[list[int]]:
    """Token ids of each text, with the start token in front and the end token behind.

    Args:
        parse_special: whether special tokens written in a text become those tokens; they do in chats.
    """
    backend.encode_special_tokens = not parse_special
    found = backend.encode_batch_fast(texts, add_special_tokens=False)
    return [[START, *encoding.ids, END] for encoding in found]
