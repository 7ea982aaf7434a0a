"""llama-cpp-python on CPU: greedy, plain or with prompt-lookup drafts. Arguments: GGUF file, `plain` or `lookup`."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from protocol import serve

LOOKUP_TOKENS = 2
"""Drafts a step that llama-cpp-python's documentation advises on CPU."""


def main() -> None:
    file, mode = sys.argv[1:3]
    threads = os.cpu_count() or 1
    lookup = mode == "lookup"
    model = llama_cpp.Llama(
        file,
        n_ctx=4096,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
        logits_all=lookup,
        draft_model=LlamaPromptLookupDecoding(num_pred_tokens=LOOKUP_TOKENS) if lookup else None,
    )

    def generate(job: dict[str, Any]) -> Iterator[int]:
        model.reset()
        return itertools.islice(model.generate(job["prompt"], temp=0.0, reset=True), job["max_tokens"])

    serve(f"llama.cpp Q4_1 {mode}", {"llama-cpp-python": llama_cpp.__version__}, generate)


if __name__ == "__main__":
    main()
