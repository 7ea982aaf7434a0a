"""`tfjax info`: what a model is, how many parameters it has and what memory it takes.

Reads no weights and imports no jax.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tfjax import __version__
from tfjax.terminal import OK, run_command

if TYPE_CHECKING:
    from tfjax.checkpoints import Checkpoint

NAME = "tfjax info"

BYTES_PER_NUMBER = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Summary:
    """What `tfjax info` tells.

    Attributes:
        context: most positions that the model was made for; None when the checkpoint does not say.
        parameters: tied weights counted once.
        stored_bytes: of the tensors in the files.
        stored_as: number of tensors by stored type.
        weight_bytes: memory of the weights by number format.
        cache_bytes_per_token: memory of one position of one stream by number format.
    """

    path: str
    format: str
    architecture: str
    layers: int
    hidden_size: int
    query_heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    context: int | None
    tied_embeddings: bool
    parameters: int
    stored_bytes: int
    stored_as: dict[str, int]
    weight_bytes: dict[str, int]
    cache_bytes_per_token: dict[str, int]


def summarize(checkpoint: Checkpoint) -> Summary:
    """Counts parameters and memory from the config and the tensor table."""
    config = checkpoint.config
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    head_size = int(config.get("head_dim") or config["hidden_size"] // heads)
    layers = int(config["num_hidden_layers"])
    context = config.get("max_position_embeddings")
    infos = checkpoint.tensors.infos
    tied = bool(config.get("tie_word_embeddings", False))
    counted = [info for name, info in infos.items() if not (tied and name == "lm_head.weight")]
    parameters = sum(math.prod(info.shape) for info in counted)
    cache_numbers = 2 * layers * kv_heads * head_size
    return Summary(
        path=str(checkpoint.path),
        format=checkpoint.format,
        architecture=checkpoint.architecture,
        layers=layers,
        hidden_size=int(config["hidden_size"]),
        query_heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        vocabulary=int(config["vocab_size"]),
        context=None if context is None else int(context),
        tied_embeddings=tied,
        parameters=parameters,
        stored_bytes=sum(info.stored_bytes for info in infos.values()),
        stored_as=dict(Counter(info.dtype for info in infos.values()).most_common()),
        weight_bytes={name: parameters * size for name, size in BYTES_PER_NUMBER.items()},
        cache_bytes_per_token={name: cache_numbers * size for name, size in BYTES_PER_NUMBER.items()},
    )


def table(summary: Summary) -> str:
    """The summary in lines for people."""
    context = "not stated" if summary.context is None else f"{summary.context:,} tokens"
    stored = ", ".join(f"{count} x {dtype}" for dtype, count in summary.stored_as.items())
    rows = [
        ("path", summary.path),
        ("format", f"{summary.format}, {size_text(summary.stored_bytes)} of tensors ({stored})"),
        ("architecture", summary.architecture),
        (
            "parameters",
            f"{summary.parameters / 1e6:,.1f} million" + (", tied embeddings" if summary.tied_embeddings else ""),
        ),
        ("shape", f"{summary.layers} layers, {summary.hidden_size} wide, vocabulary {summary.vocabulary:,}"),
        ("attention", f"{summary.query_heads} heads on {summary.kv_heads} kv heads of {summary.head_size}"),
        ("context", context),
    ]
    for name in BYTES_PER_NUMBER:
        per_token = summary.cache_bytes_per_token[name]
        whole = "" if summary.context is None else f", {size_text(per_token * summary.context)} for a whole context"
        weights = size_text(summary.weight_bytes[name])
        rows.append((f"memory {name}", f"weights {weights}; each stream {size_text(per_token)} a token{whole}"))
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:{width}}  {text}" for label, text in rows)


def size_text(size: float) -> str:
    """Bytes in the largest unit that leaves a number of at least one."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def parser() -> argparse.ArgumentParser:
    """The command line of `tfjax info`."""
    result = argparse.ArgumentParser(
        prog=NAME,
        description="What a model is, how many parameters it has and what memory it takes. Downloads nothing.",
        allow_abbrev=False,
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
    arguments = parser().parse_args(argv)
    return run_command(NAME, lambda: _info(arguments))


def _info(arguments: argparse.Namespace) -> int:
    from tfjax.checkpoints import open_checkpoint
    from tfjax.checkpoints.resolve import resolve_model

    path = resolve_model(arguments.model, offline=True, progress=lambda phase, fraction: None)
    summary = summarize(open_checkpoint(path))
    print(json.dumps(asdict(summary), indent=2) if arguments.json else table(summary))
    return OK


if __name__ == "__main__":
    sys.exit(main())
