"""Values of a GGUF file's metadata, each checked when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.gguf_index import GgufFile, Value


class Metadata:
    """The metadata of one file under its architecture's name; errors name the file and the key."""

    def __init__(self, file: GgufFile) -> None:
        self.path = file.path
        self._values = file.metadata
        self._prefix = f"{file.metadata.get('general.architecture')}."

    def optional(self, key: str) -> Value | None:
        return self._values.get(f"{self._prefix}{key}")

    def count(self, key: str, default: int | None = None) -> int:
        """A positive integer; a list of equal ones counts as one."""
        value = self.optional(key)
        if value is None:
            if default is None:
                raise self.error("metadata key is missing", key, None, "a positive integer")
            return default
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise self.error("metadata key has an unusable value", key, value, "a positive integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self.optional(key)
        if value is None:
            if default is None:
                raise self.error("metadata key is missing", key, None, "a positive number")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.error("metadata key has an unusable value", key, value, "a positive number")
        return float(value)

    def error(self, problem: str, key: str, found: object, expected: str) -> CheckpointError:
        return CheckpointError(self.path, f"{problem}: {self._prefix}{key}", found=found, expected=expected)

    def refuse_unknown(self, understood: Collection[str]) -> None:
        """Raises CheckpointError for a key that nobody translates."""
        for name, value in self._values.items():
            key = name.removeprefix(self._prefix)
            if key != name and key not in understood:
                raise self.error("unknown metadata key", key, value, "no such key")


def head_size(meta: Metadata, hidden: int, heads: int) -> int:
    """Rows of a head in Q and K; keys that say otherwise are refused."""
    head_dim = meta.count("attention.key_length", hidden // heads or None)
    for key in ("attention.value_length", "rope.dimension_count"):
        found = meta.count(key, head_dim)
        if found != head_dim:
            raise meta.error("differs from the head size", key, found, str(head_dim))
    return head_dim


def special_ids(metadata: Mapping[str, Value]) -> dict[str, Any]:
    """bos_token_id, eos_token_id (a list when a reply may end in several ways) and pad_token_id, as far as given."""
    ids: dict[str, Any] = {}
    ends = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    distinct = list(dict.fromkeys(end for end in ends if isinstance(end, int)))
    if distinct:
        ids["eos_token_id"] = distinct[0] if len(distinct) == 1 else distinct
    for name, key in (("bos", "bos_token_id"), ("padding", "pad_token_id")):
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(value, int):
            ids[key] = value
    return ids
