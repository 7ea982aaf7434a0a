"""`tfjax info`: what a model is, how many parameters it has and what memory it takes.

Reads no weights and imports no jax.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfjax import __version__
from tfjax.parsing import CommandParser
from tfjax.terminal import OK, run_command

NAME = "tfjax info"

BYTES_PER_NUMBER = {"bfloat16": 2, "float32": 4}


def describe(path: Path) -> dict[str, Any]:
    """What the checkpoint says of itself, beside it `memory`: bytes by number format, and `served`: known architecture.

    Raises:
        CheckpointError: the model cannot be used.
    """
    from tfjax.checkpoints.summary import summarize
    from tfjax.models.registry import FAMILIES

    summary = summarize(path)
    return {
        **summary,
        "served": summary["architecture"] in FAMILIES,
        "memory": memory(summary["config"], summary["parameters"]),
    }


def memory(config: Mapping[str, Any], parameters: int) -> dict[str, dict[str, int]]:
    """Bytes of the weights, and of one position of one stream in the cache, by number format."""
    _, kv_heads, head_size = _attention(config)
    numbers = 2 * attention_layers(config) * kv_heads * head_size
    return {
        name: {"weight_bytes": parameters * size, "cache_bytes_per_token": numbers * size}
        for name, size in BYTES_PER_NUMBER.items()
    }


def attention_layers(config: Mapping[str, Any]) -> int:
    """Layers that keep keys and values of every position; LFM2's others are short convolutions."""
    if kinds := config.get("layer_types"):
        return sum(kind != "conv" for kind in kinds)
    indices = config.get("full_attn_idxs")
    layers: int = config["num_hidden_layers"] if indices is None else len(indices)
    return layers


def _attention(config: Mapping[str, Any]) -> tuple[int, int, int]:
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    return heads, kv_heads, config.get("head_dim") or config["hidden_size"] // heads


def table(described: Mapping[str, Any]) -> str:
    """What `describe` found, in lines for people."""
    from tfjax.models.registry import supported

    config = described["config"]
    heads, kv_heads, head_size = _attention(config)
    context = config.get("max_position_embeddings")
    stored = ", ".join(f"{name} {size_text(size)}" for name, size in described["bytes_by_type"].items())
    tied = ", tied embeddings" if config.get("tie_word_embeddings") else ""
    layers, attending = config["num_hidden_layers"], attention_layers(config)
    mixed = "" if attending == layers else f" ({attending} with attention)"
    rows = [
        ("path", described["path"]),
        ("format", f"{described['format']}, {described['tensors']} tensors ({stored})"),
        ("architecture", described["architecture"]),
        ("served", "yes" if described["served"] else f"no, supported architectures are {supported()}"),
        ("parameters", f"{described['parameters'] / 1e6:,.1f} million{tied}"),
        (
            "shape",
            f"{layers} layers{mixed}, {config['hidden_size']} wide, vocabulary {config['vocab_size']:,}",
        ),
        ("attention", f"{heads} heads on {kv_heads} kv heads of {head_size}"),
        ("context", "not stated" if context is None else f"{context:,} tokens"),
    ]
    for name, needed in described["memory"].items():
        each = needed["cache_bytes_per_token"]
        whole = "" if context is None else f", {size_text(each * context)} for a whole context"
        text = f"weights {size_text(needed['weight_bytes'])}; each stream {size_text(each)} a token{whole}"
        rows.append((f"memory {name}", text))
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:{width}}  {text}" for label, text in rows)


def size_text(size: float) -> str:
    """Bytes in the largest unit that leaves a number of at least one."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def parser() -> CommandParser:
    """The command line of `tfjax info`."""
    result = CommandParser(
        prog=NAME,
        description="What a model is, how many parameters it has and what memory it takes. Downloads nothing.",
    )
    result.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="directory of safetensors, GGUF file or hub id already fetched (default: SmolLM2-135M-Instruct)",
    )
    result.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the summary and returns the exit code."""
    arguments = parser().parse(argv)
    return run_command(NAME, lambda: _info(arguments))


def _info(arguments: argparse.Namespace) -> int:
    from tfjax.checkpoints.resolve import resolve_model

    described = describe(resolve_model(arguments.model, offline=True, progress=lambda phase, fraction: None))
    print(json.dumps(described, indent=2) if arguments.json else table(described))
    return OK


if __name__ == "__main__":
    sys.exit(main())
