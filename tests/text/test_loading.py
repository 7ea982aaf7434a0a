"""A checkpoint's tokenizer, from the files of a directory or from GGUF metadata."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend

from tests.checkpoints.gguf_files import write_gguf
from tests.checkpoints.hf_files import CONFIG, write_directory
from tests.text import backends
from tfjax.checkpoints import Checkpoint, CheckpointError, open_checkpoint
from tfjax.text import load_tokenizer
from tfjax.text.loading import MAX_TEMPLATE_BYTES


def checkpoint_with(
    directory: Path,
    *,
    backend: Backend | None = None,
    settings: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    generation: dict[str, Any] | None = None,
) -> Checkpoint:
    """A directory with a tokenizer; vocab_size fits it."""
    write_directory(directory, config={**CONFIG, "vocab_size": 260, **(config or {})})
    (backend or backends.byte_level()).save(str(directory / "tokenizer.json"))
    for name, content in (("tokenizer_config.json", settings), ("generation_config.json", generation)):
        if content is not None:
            (directory / name).write_text(json.dumps(content))
    return open_checkpoint(directory)


def test_directory(tmp_path: Path) -> None:
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "chat_template": "{{ 1 }}"}
    tokenizer = load_tokenizer(checkpoint_with(tmp_path, settings=settings))
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.chat_template) == (0, (1,), "{{ 1 }}")
    assert tokenizer.encode("ab") == [258]


def test_ends_come_from_all_files_without_repetition(tmp_path: Path) -> None:
    checkpoint = checkpoint_with(
        tmp_path,
        settings={"eos_token": "</s>"},
        config={"eos_token_id": [7, 5]},
        generation={"eos_token_id": [5, 6]},
    )
    assert load_tokenizer(checkpoint).eos_ids == (5, 6, 7, 1)


def test_ids_from_the_config_when_no_names_are_given(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(checkpoint_with(tmp_path, config={"bos_token_id": 0, "eos_token_id": 1}))
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (0, (1,))


def test_special_tokens_map_is_the_older_place(tmp_path: Path) -> None:
    checkpoint = checkpoint_with(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    tokenizer = load_tokenizer(checkpoint)
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (0, (1,))


@pytest.mark.parametrize("unusable", [None, True, -1, "1", 1.0, [None]])
def test_unusable_ids_are_left_out(tmp_path: Path, unusable: Any) -> None:
    checkpoint = checkpoint_with(tmp_path, config={"eos_token_id": unusable, "bos_token_id": unusable})
    tokenizer = load_tokenizer(checkpoint)
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (None, ())


@pytest.mark.parametrize(
    ("said", "processor", "wanted"),
    [(None, False, False), (None, True, True), (True, False, True), (False, True, False)],
)
def test_bos_as_said_or_as_the_tokenizer_does(tmp_path: Path, said: bool | None, processor: bool, wanted: bool) -> None:
    backend = backends.byte_level()
    settings: dict[str, Any] = {"bos_token": "<s>"} | ({} if said is None else {"add_bos_token": said})
    checkpoint = checkpoint_with(
        tmp_path, backend=backends.with_bos(backend) if processor else backend, settings=settings
    )
    assert load_tokenizer(checkpoint).encode("ab") == ([0] if wanted else []) + [258]


def test_saved_truncation_and_padding_do_not_touch_a_prompt(tmp_path: Path) -> None:
    backend = backends.byte_level()
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    assert len(load_tokenizer(checkpoint_with(tmp_path, backend=backend)).encode("cdefg")) == 5


def test_template_file_goes_first(tmp_path: Path) -> None:
    checkpoint = checkpoint_with(tmp_path, settings={"chat_template": "old"})
    (tmp_path / "chat_template.jinja").write_text("new é")
    assert load_tokenizer(checkpoint).chat_template == "new é"


def test_named_templates(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert load_tokenizer(checkpoint_with(tmp_path, settings={"chat_template": named})).chat_template == "d"
    assert load_tokenizer(checkpoint_with(tmp_path, settings={"chat_template": named[:1]})).chat_template is None


def test_a_huge_template_file_is_not_read_whole(tmp_path: Path) -> None:
    checkpoint = checkpoint_with(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("x" * (MAX_TEMPLATE_BYTES * 2))
    assert len(load_tokenizer(checkpoint).chat_template or "") == MAX_TEMPLATE_BYTES + 1


def test_template_that_is_no_text(tmp_path: Path) -> None:
    checkpoint = checkpoint_with(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja: cannot be read"):
        load_tokenizer(checkpoint)


def test_no_tokenizer(tmp_path: Path) -> None:
    write_directory(tmp_path)
    (tmp_path / "tokenizer.model").touch()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: no such file; found tokenizer\.model; expected"):
        load_tokenizer(open_checkpoint(tmp_path))


@pytest.mark.parametrize("content", ["", "{}", "[1]", "{", '{"model": {"type": "Nothing"}}'])
def test_damaged_tokenizer(tmp_path: Path, content: str) -> None:
    checkpoint = checkpoint_with(tmp_path)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: not a tokenizer; found .*Fetch the file again"):
        load_tokenizer(checkpoint)


def test_damaged_settings(tmp_path: Path) -> None:
    checkpoint = checkpoint_with(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: not valid JSON"):
        load_tokenizer(checkpoint)


def test_tokenizer_of_another_model(tmp_path: Path) -> None:
    checkpoint = checkpoint_with(tmp_path, config={"vocab_size": 259})
    with pytest.raises(CheckpointError, match="has 260 token ids, but the model's vocab_size is 259"):
        load_tokenizer(checkpoint)


def test_gguf(tmp_path: Path) -> None:
    metadata = {
        "tokenizer.chat_template": "{{ 1 }}",
        "tokenizer.ggml.eot_token_id": 5,
        "tokenizer.ggml.add_bos_token": True,
    }
    tokenizer = load_tokenizer(open_checkpoint(write_gguf(tmp_path / "m.gguf", metadata=metadata)))
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.chat_template) == (0, (1, 5), "{{ 1 }}")
    assert tokenizer.encode("abc") == [0, 4, 5]


def test_unsupported_gguf_tokenizer_names_the_file(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", metadata={"tokenizer.ggml.pre": "qwen2"}))
    with pytest.raises(CheckpointError, match=r"m\.gguf: tokenizer\.ggml\.pre is 'qwen2'; supported are"):
        load_tokenizer(checkpoint)


def test_gguf_vocabulary_against_its_config(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf"))
    with pytest.raises(CheckpointError, match="has 6 token ids, but the model's vocab_size is 5"):
        load_tokenizer(replace(checkpoint, config={**checkpoint.config, "vocab_size": 5}))


@pytest.mark.weights
def test_default_model(smollm2_gguf: Path) -> None:
    tokenizer = load_tokenizer(open_checkpoint(smollm2_gguf))
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.vocab_size) == ("<|im_start|>", "<|im_end|>", 49152)
    assert tokenizer.chat_template is not None
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
