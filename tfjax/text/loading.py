"""The tokenizer of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from tfjax.checkpoints import Checkpoint, CheckpointError, HfTokenizerFiles
from tfjax.checkpoints.gguf_index import GgufFile
from tfjax.checkpoints.json_files import read_optional_object
from tfjax.text import gguf_tokenizer
from tfjax.text.pieces import UnsupportedTokenizer
from tfjax.text.tokenizer import SpecialTokens, Tokenizer, check_vocabulary

MAX_TEMPLATE_BYTES = 256 * 1024


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Reads tokenizer.json and the files beside it, or rebuilds the tokenizer from GGUF metadata.

    Raises:
        CheckpointError: there is no tokenizer, it is not supported, or it does not fit the model's vocab_size.
    """
    source = checkpoint.tokenizer
    try:
        if isinstance(source, HfTokenizerFiles):
            tokenizer = _from_directory(source.directory, checkpoint)
        else:
            tokenizer = _from_gguf(source.file)
        check_vocabulary(tokenizer, checkpoint.config["vocab_size"], "vocabulary")
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(checkpoint.path, str(error)) from error
    return tokenizer


def _from_gguf(file: GgufFile) -> Tokenizer:
    metadata = file.metadata
    ends = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    template = metadata.get("tokenizer.chat_template")
    special = SpecialTokens(
        bos_id=bos if isinstance(bos, int) else None,
        eos_ids=_token_ids(ends),
        add_bos=gguf_tokenizer.adds_bos(file),
    )
    return Tokenizer(gguf_tokenizer.build(file), special, template if isinstance(template, str) else None)


def _from_directory(directory: Path, checkpoint: Checkpoint) -> Tokenizer:
    backend = _backend(directory)
    settings = read_optional_object(directory / "special_tokens_map.json")
    settings |= read_optional_object(directory / "tokenizer_config.json")
    bos = _named_id(backend, settings.get("bos_token"))
    if bos is None:
        bos = next(iter(_token_ids([checkpoint.config.get("bos_token_id")])), None)
    ends = (
        _listed(checkpoint.generation_config.get("eos_token_id"))
        + _listed(checkpoint.config.get("eos_token_id"))
        + [_named_id(backend, settings.get("eos_token"))]
    )
    special = SpecialTokens(bos, _token_ids(ends), _adds_bos(backend, settings, bos))
    return Tokenizer(backend, special, _chat_template(directory, settings))


def _backend(directory: Path) -> tokenizers.Tokenizer:
    file = directory / "tokenizer.json"
    if not file.exists():
        found = ", ".join(sorted(entry.name for entry in directory.glob("tokenizer*"))) or "no tokenizer files"
        remedy = "Convert the tokenizer with transformers (save_pretrained writes tokenizer.json)."
        raise CheckpointError(file, "no such file", found=found, expected="tokenizer.json", remedy=remedy)
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(file, "not a tokenizer", found=error, remedy="Fetch the file again.") from error
    # Settings of whoever saved the file; a prompt is never cut or filled silently.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _adds_bos(backend: tokenizers.Tokenizer, settings: Mapping[str, Any], bos: int | None) -> bool:
    said = settings.get("add_bos_token")
    if isinstance(said, bool):
        return said
    return bos is not None and backend.encode("", add_special_tokens=True).ids[:1] == [bos]


def _chat_template(directory: Path, settings: Mapping[str, Any]) -> str | None:
    file = directory / "chat_template.jinja"
    if file.exists():
        try:
            with file.open("rb") as opened:
                return opened.read(MAX_TEMPLATE_BYTES + 1).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(file, "cannot be read", found=error) from error
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _named_id(backend: tokenizers.Tokenizer, token: Any) -> int | None:
    """The id of a special token given as text or as a description with its text under `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    found: int | None = backend.token_to_id(text) if isinstance(text, str) else None
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _token_ids(values: Iterable[Any]) -> tuple[int, ...]:
    """The distinct token ids among `values`, in order."""
    ids = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value >= 0]
    return tuple(dict.fromkeys(ids))


__all__ = ["UnsupportedTokenizer", "load_tokenizer"]
