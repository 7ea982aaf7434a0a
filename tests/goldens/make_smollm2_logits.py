"""Makes smollm2_logits.json: the largest logits of SmolLM2 by transformers in float32, on the weights of the GGUF file.

Run in the environment of environment.py:  PEERS/bin/python tests/goldens/make_smollm2_logits.py SMOLLM2_GGUF
For every prompt: its ids and, at every tenth position and the last, the five largest logits in descending order.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

COMMAND = "python tests/goldens/make_smollm2_logits.py SmolLM2-135M-Instruct.Q4_1.gguf"
HERE = Path(__file__).parent
STEP, TOP = 10, 5
PROMPTS = (
    "The three primary colours are red, yellow and blue. Mixing two of them gives a secondary",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n\n",
    (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWrite a short story about a lighthouse keeper who finds a message in a bottle.<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    '{"users": [{"id": 1, "name": "Ada", "tags": ["a", "b"]}, {"id": 2, "name": "Grace", "tags": []}, {"id": 3,',
    (
        "The history of computing is longer than that of electronic machines. Tally sticks, the abacus and "
        "the slide rule helped people to calculate for thousands of years. In the nineteenth century Charles "
        "Babbage designed an engine that could be programmed with punched cards, and Ada Lovelace wrote what "
        "is often called the first program. In the 1930s Alan Turing described an abstract machine that can "
        "compute whatever is computable, and Konrad Zuse built working machines with relays. During the war "
        "Colossus broke ciphers; afterwards ENIAC, EDSAC and the Manchester Baby showed what electronics "
        "could do. The transistor of 1947 made machines small, and the integrated circuit made them"
    ),
)


def main(gguf: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    entries = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        positions = sorted({*range(0, len(ids), STEP), len(ids) - 1})
        top = logits[positions].topk(TOP)
        entries.append(
            {
                "prompt": prompt,
                "ids": ids,
                "positions": positions,
                "top_ids": top.indices.tolist(),
                "top_logits": [[round(value, 5) for value in row] for row in top.values.tolist()],
            }
        )
    golden = {
        "command": COMMAND,
        "versions": {name: version(name) for name in ("torch", "transformers", "gguf")},
        "dtype": "float32, eager attention",
        "entries": entries,
    }
    (HERE / "smollm2_logits.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
