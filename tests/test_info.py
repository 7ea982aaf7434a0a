"""`tfjax info`: the numbers, and how fast they come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tfjax.info import attention_layers, memory, size_text, table

CONFIG: dict[str, Any] = {
    "hidden_size": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}


def described(**changes: Any) -> dict[str, Any]:
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    return {
        "path": "model",
        "format": "safetensors",
        "architecture": "LlamaForCausalLM",
        "served": True,
        "config": config,
        "parameters": 88_000_000,
        "tensors": 2,
        "bytes": 2048,
        "bytes_by_type": {"F16": 2048},
        "memory": memory(config, 88),
    }


def test_memory() -> None:
    assert memory(CONFIG, 88) == {
        # keys and values, 3 layers, 2 kv heads of 8 / 4 numbers
        "bfloat16": {"weight_bytes": 176, "cache_bytes_per_token": 2 * 3 * 2 * 2 * 2},
        "float32": {"weight_bytes": 352, "cache_bytes_per_token": 2 * 3 * 2 * 2 * 4},
    }


def test_a_stated_head_size_wins() -> None:
    assert memory({**CONFIG, "head_dim": 16}, 1)["bfloat16"]["cache_bytes_per_token"] == 2 * 3 * 2 * 16 * 2
    assert memory({**CONFIG, "head_dim": None}, 1) == memory(CONFIG, 1)


def test_without_kv_heads_every_head_has_its_own() -> None:
    config = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"}
    assert memory(config, 1)["bfloat16"]["cache_bytes_per_token"] == 2 * 3 * 4 * 2 * 2


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, 3),
        ({"layer_types": ["conv", "full_attention", "conv"]}, 1),
        ({"full_attn_idxs": [0, 2]}, 2),
        ({"layer_types": ["conv", "full_attention", "conv"], "full_attn_idxs": [0, 2]}, 1),
    ],
)
def test_only_layers_with_attention_keep_keys_and_values(changes: dict[str, Any], layers: int) -> None:
    config = {**CONFIG, **changes}
    assert attention_layers(config) == layers
    assert memory(config, 1)["bfloat16"]["cache_bytes_per_token"] == 2 * layers * 2 * 2 * 2
    shown = "3 layers, 8 wide" if layers == 3 else f"3 layers ({layers} with attention), 8 wide"
    assert shown in table(described(**changes))


def test_lines_for_people() -> None:
    text = table(described())
    assert "format           safetensors, 2 tensors (F16 2.0 KiB)" in text
    assert "parameters       88.0 million\n" in text
    assert "context          64 tokens" in text
    assert "attention        4 heads on 2 kv heads of 2" in text
    assert "memory bfloat16  weights 176 B; each stream 48 B a token, 3.0 KiB for a whole context" in text
    assert "context          not stated" in table(described(max_position_embeddings=None))
    assert "served           yes\n" in text
    assert "served           no, supported architectures are Lfm2ForCausalLM, " in table(
        {**described(), "served": False}
    )
    assert "million, tied embeddings" in table(described(tie_word_embeddings=True))


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


@pytest.mark.alone
@pytest.mark.weights
def test_a_gguf_file_takes_5_s_the_first_time_and_1_s_after(smollm2_gguf: Path, tmp_path: Path) -> None:
    first, first_s = run(str(smollm2_gguf), "--json", cache=tmp_path)
    again = [run(str(smollm2_gguf), "--json", cache=tmp_path) for _ in range(2)]
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert found["served"] is True
    assert (found["parameters"], found["config"]["num_hidden_layers"]) == (134_515_008, 30)
    assert all(done.stdout == first.stdout for done, _ in again)
    assert first_s < 5
    assert min(seconds for _, seconds in again) < 1


@pytest.mark.weights
def test_the_default_model_is_found(tmp_path: Path) -> None:
    done, _ = run(cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "LlamaForCausalLM" in done.stdout
