"""transformers on CPU: greedy, its own key/value cache, one token a forward. Arguments: GGUF file, number format."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from protocol import serve
from transformers import AutoModelForCausalLM, GgufConfig


def main() -> None:
    file, dtype = sys.argv[1:3]
    torch.set_num_threads(os.cpu_count() or 1)
    # Dense weights: left packed, transformers multiplies in float32 whatever format is asked for.
    model = AutoModelForCausalLM.from_pretrained(
        Path(file).parent,
        gguf_file=Path(file).name,
        dtype=getattr(torch, dtype),
        quantization_config=GgufConfig(dequantize=True),
    ).eval()

    @torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is not there where types are checked
    def generate(job: dict[str, Any]) -> Iterator[int]:
        ids = torch.tensor([job["prompt"]])
        past = None
        for _ in range(job["max_tokens"]):
            out = model(input_ids=ids, past_key_values=past, use_cache=True, logits_to_keep=1)
            past = out.past_key_values
            ids = out.logits[:, -1:].argmax(-1)
            yield int(ids)

    serve(f"transformers {dtype}", {"transformers": transformers.__version__, "torch": torch.__version__}, generate)


if __name__ == "__main__":
    main()
