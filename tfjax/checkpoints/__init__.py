"""Models as they lie on disk: safetensors directories and GGUF files, under one set of names. Imports no jax."""

from tfjax.checkpoints.checkpoint import (
    Checkpoint,
    GgufTokenizer,
    HfTokenizerFiles,
    PackedSource,
    TensorInfo,
    TensorSource,
)
from tfjax.checkpoints.directory_tensors import open_tensors
from tfjax.checkpoints.errors import CheckpointError
from tfjax.checkpoints.opening import open_checkpoint

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "GgufTokenizer",
    "HfTokenizerFiles",
    "PackedSource",
    "TensorInfo",
    "TensorSource",
    "open_checkpoint",
    "open_tensors",
]
