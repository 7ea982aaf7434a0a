"""A summary counts what is stored, and needs neither jax nor the weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints.gguf_files import SHAPES, write_gguf
from tests.checkpoints.hf_files import write_directory
from tfjax.checkpoints.summary import summarize


def test_gguf(tmp_path: Path) -> None:
    half = np.zeros(SHAPES["blk.0.ffn_up.weight"], np.float16)
    path = write_gguf(tmp_path / "m.gguf", tensors={"blk.0.ffn_up.weight": half})
    summary = summarize(path)
    parameters = sum(int(np.prod(shape)) for shape in SHAPES.values())
    halves = half.size * 2
    assert summary["parameters"] == parameters
    assert summary["bytes_by_type"] == {"F32": (parameters - half.size) * 4, "F16": halves}
    assert summary["bytes"] == sum(summary["bytes_by_type"].values())
    assert (summary["format"], summary["architecture"], summary["tensors"]) == ("gguf", "LlamaForCausalLM", len(SHAPES))
    assert summary["files"] == [str(path)]
    assert summary["config"]["head_dim"] == 64
    json.dumps(summary)


def test_directory(tmp_path: Path) -> None:
    summary = summarize(write_directory(tmp_path / "m"))
    assert (summary["format"], summary["parameters"], summary["bytes"]) == ("safetensors", 28, 112)


@pytest.mark.parametrize("module", ["tfjax.checkpoints.summary", "tfjax.text", "tfjax.text.chat_template"])
def test_imports_no_jax(module: str) -> None:
    check = f"import sys, {module}; raise SystemExit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
