"""Both formats open under one interface; everything else is refused with what was found and what was expected."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkpoints.gguf_files import write_gguf
from tests.checkpoints.hf_files import CONFIG, weights, write_directory
from tfjax.checkpoints import CheckpointError, GgufTokenizer, HfTokenizerFiles, open_checkpoint

GOLDENS = Path(__file__).parent.parent / "goldens"


def test_directory(tmp_path: Path) -> None:
    directory = write_directory(tmp_path / "m")
    (directory / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    checkpoint = open_checkpoint(directory)
    assert (checkpoint.path, checkpoint.format, checkpoint.architecture) == (
        directory,
        "safetensors",
        "LlamaForCausalLM",
    )
    assert checkpoint.config == CONFIG
    assert checkpoint.generation_config == {"eos_token_id": [1, 2]}
    assert checkpoint.tokenizer == HfTokenizerFiles(directory)
    np.testing.assert_array_equal(checkpoint.tensors.read("model.norm.weight"), weights()["model.norm.weight"])


def test_generation_config_is_optional(tmp_path: Path) -> None:
    assert open_checkpoint(write_directory(tmp_path / "m")).generation_config == {}


def test_gguf_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    checkpoint = open_checkpoint(path)
    assert (checkpoint.path, checkpoint.format, checkpoint.architecture) == (path, "gguf", "LlamaForCausalLM")
    assert checkpoint.generation_config == {"bos_token_id": 0, "eos_token_id": 1}
    assert isinstance(checkpoint.tokenizer, GgufTokenizer)


def test_the_only_gguf_file_of_a_directory(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    assert open_checkpoint(tmp_path).path == path
    write_gguf(tmp_path / "n.gguf")
    with pytest.raises(CheckpointError, match=r"several GGUF files; found m\.gguf, n\.gguf; expected one"):
        open_checkpoint(tmp_path)


def test_gguf_is_known_by_its_content(tmp_path: Path) -> None:
    assert open_checkpoint(write_gguf(tmp_path / "weights.dat")).format == "gguf"


@pytest.mark.parametrize("directory", sorted(GOLDENS.glob("tiny_llama_*")), ids=lambda path: path.name)
def test_directories_that_transformers_wrote(directory: Path) -> None:
    checkpoint = open_checkpoint(directory)
    shape = checkpoint.tensors.infos["model.embed_tokens.weight"].shape
    assert shape == (checkpoint.config["vocab_size"], checkpoint.config["hidden_size"])


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nothing: no such model; expected a directory with config\.json"):
        open_checkpoint(tmp_path / "nothing")


def test_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="empty directory"):
        open_checkpoint(tmp_path)


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    with pytest.raises(CheckpointError, match="not a model; found a file starting b''"):
        open_checkpoint(tmp_path / "m.gguf")


def test_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(CheckpointError, match=r"not a model; found notes\.txt"):
        open_checkpoint(tmp_path)


def test_single_safetensors_file_asks_for_its_directory(tmp_path: Path) -> None:
    directory = write_directory(tmp_path)
    with pytest.raises(CheckpointError, match="Give the directory that holds the file"):
        open_checkpoint(directory / "model.safetensors")


def test_weights_without_a_config(tmp_path: Path) -> None:
    (write_directory(tmp_path) / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json is missing; found model\.safetensors"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1]", "wrong JSON; found list; expected an object"),
        ('{"a": "\\ud800', "not valid JSON"),
    ],
)
def test_bad_json(tmp_path: Path, text: str, message: str) -> None:
    (write_directory(tmp_path) / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=rf"config\.json: {message}"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size"])
@pytest.mark.parametrize("value", [None, 0, -1, "8", True, 1.5])
def test_required_numbers(tmp_path: Path, key: str, value: Any) -> None:
    config = {**CONFIG, key: value}
    with pytest.raises(CheckpointError, match=rf"config\.json: required key: {key}"):
        open_checkpoint(write_directory(tmp_path, config=config))


def test_required_numbers_of_a_nested_config(tmp_path: Path) -> None:
    """As vLLM's speculators have it; what stands at the top does not count then."""
    config = {"architectures": ["DSparkSpeculator"], "transformer_layer_config": dict(CONFIG)}
    assert open_checkpoint(write_directory(tmp_path / "a", config=config)).config["transformer_layer_config"] == CONFIG
    config = {**CONFIG, "transformer_layer_config": {**CONFIG, "vocab_size": 0}}
    with pytest.raises(CheckpointError, match="required key: vocab_size"):
        open_checkpoint(write_directory(tmp_path / "b", config=config))


@pytest.mark.parametrize("value", [None, [], "LlamaForCausalLM", [3]])
def test_required_architecture(tmp_path: Path, value: Any) -> None:
    with pytest.raises(CheckpointError, match="required key: architectures"):
        open_checkpoint(write_directory(tmp_path, config={**CONFIG, "architectures": value}))


@pytest.mark.parametrize("key", ["quantization_config", "quantization"])
def test_safetensors_quantized_by_another_method_are_refused(tmp_path: Path, key: str) -> None:
    config = {**CONFIG, key: {"quant_method": "gptq", "bits": 4}}
    with pytest.raises(CheckpointError, match=rf"method that is not supported \({key}\).*found .*gptq.*GGUF"):
        open_checkpoint(write_directory(tmp_path, config=config))


def test_truncated_gguf_names_the_tensor_that_is_cut(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    open_checkpoint(path)
    size = path.stat().st_size - 8
    path.write_bytes(path.read_bytes()[:size])
    message = rf"m\.gguf: damaged or truncated .*tensor blk\.0\.ffn_down\.weight: data at .* the file has {size} bytes"
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path)


def test_unreadable_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "m.gguf")

    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CheckpointError, match=r"m\.gguf: cannot be read; found Permission denied"):
        open_checkpoint(path)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 1500), byte=st.integers(0, 255))
def test_any_changed_byte_of_a_gguf_is_an_error_or_harmless(tmp_path: Path, position: int, byte: int) -> None:
    path = tmp_path / "m.gguf"
    data = bytearray((path if path.exists() else write_gguf(path)).read_bytes())
    data[position] = byte
    damaged = tmp_path / "changed.gguf"
    damaged.write_bytes(data)
    with contextlib.suppress(CheckpointError):
        open_checkpoint(damaged)


def test_config_is_json(tmp_path: Path) -> None:
    json.dumps(open_checkpoint(write_gguf(tmp_path / "m.gguf")).config)
