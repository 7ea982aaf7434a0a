"""`tfjax info`: the numbers, and how fast they come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tfjax.checkpoints import Checkpoint, HfTokenizerFiles, TensorInfo
from tfjax.info import size_text, summarize, table

CONFIG = {
    "hidden_size": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}


class Tensors:
    """A tensor table without tensors."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.infos = {
            name: TensorInfo(shape, "F16" if len(shape) > 1 else "F32", Path("x"), 2 * len(shape))
            for name, shape in shapes.items()
        }

    def read(self, name: str) -> Any:
        raise AssertionError(f"info read the tensor {name}")


def checkpoint(config: Mapping[str, Any] = CONFIG, **shapes: tuple[int, ...]) -> Checkpoint:
    named = {name.replace("__", "."): shape for name, shape in shapes.items()}
    directory = Path("model")
    tensors = Tensors(named or {"a.weight": (10, 8), "b.weight": (8,)})
    return Checkpoint(directory, "safetensors", "LlamaForCausalLM", config, {}, tensors, HfTokenizerFiles(directory))


def test_parameters_and_memory() -> None:
    summary = summarize(checkpoint())
    assert summary.parameters == 88
    assert summary.weight_bytes == {"bfloat16": 176, "float32": 352}
    # keys and values, 3 layers, 2 kv heads of 8 / 4 numbers
    assert summary.cache_bytes_per_token == {"bfloat16": 2 * 3 * 2 * 2 * 2, "float32": 2 * 3 * 2 * 2 * 4}
    assert summary.stored_as == {"F16": 1, "F32": 1}
    assert summary.stored_bytes == 6


def test_a_stated_head_size_wins() -> None:
    assert summarize(checkpoint({**CONFIG, "head_dim": 16})).head_size == 16
    assert summarize(checkpoint({**CONFIG, "head_dim": None})).head_size == 2


def test_without_kv_heads_every_head_has_its_own() -> None:
    config = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"}
    assert summarize(checkpoint(config)).kv_heads == 4


def test_tied_weights_count_once() -> None:
    shapes = {"embed": (100, 8), "lm_head__weight": (100, 8)}
    assert summarize(checkpoint({**CONFIG, "tie_word_embeddings": True}, **shapes)).parameters == 800
    assert summarize(checkpoint({**CONFIG, "tie_word_embeddings": False}, **shapes)).parameters == 1600


def test_lines_for_people() -> None:
    text = table(summarize(checkpoint()))
    assert "context          64 tokens" in text
    assert "attention        4 heads on 2 kv heads of 2" in text
    assert "memory bfloat16  weights 176 B; each stream 48 B a token, 3.0 KiB for a whole context" in text
    config = {key: value for key, value in CONFIG.items() if key != "max_position_embeddings"}
    assert "context          not stated" in table(summarize(checkpoint(config)))


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


def run(*words: str, cache: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    start = time.perf_counter()
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    code = "import sys\nfrom tfjax.info import main\ncode = main()\nassert 'jax' not in sys.modules\nsys.exit(code)\n"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, env=environ, timeout=60
    )
    return done, time.perf_counter() - start


@pytest.mark.weights
def test_a_gguf_file_takes_5_s_the_first_time_and_1_s_after(smollm2_gguf: Path, tmp_path: Path) -> None:
    first, first_s = run(str(smollm2_gguf), "--json", cache=tmp_path)
    again = [run(str(smollm2_gguf), "--json", cache=tmp_path) for _ in range(2)]
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert (found["parameters"], found["layers"], found["vocabulary"]) == (134_515_008, 30, 49152)
    assert all(done.stdout == first.stdout for done, _ in again)
    assert first_s < 5
    assert min(seconds for _, seconds in again) < 1


@pytest.mark.weights
def test_the_default_model_is_found(tmp_path: Path) -> None:
    done, _ = run(cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "LlamaForCausalLM" in done.stdout
