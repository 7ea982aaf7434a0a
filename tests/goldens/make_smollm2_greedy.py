"""Remakes the greedy replies of smollm2_greedy.json with transformers, and reports whether they are the same.

Run in the environment of environment.py:  PEERS/bin/python tests/goldens/make_smollm2_greedy.py SMOLLM2_GGUF
float32 on the weights of the GGUF file, no BOS, EOS does not stop. The file is left as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

GOLDEN = Path(__file__).parent / "smollm2_greedy.json"


def main(gguf: Path) -> int:
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32).eval()
    different = 0
    for entry in json.loads(GOLDEN.read_text())["entries"]:
        if not entry["engine"].startswith("transformers"):
            continue
        ids = tokenizer.encode(entry["prompt"], add_special_tokens=False)
        wanted = len(entry["token_ids"])
        reply = model.generate(
            torch.tensor([ids]), do_sample=False, min_new_tokens=wanted, max_new_tokens=wanted, eos_token_id=-1
        )[0, len(ids) :].tolist()
        same = (ids, reply) == (entry["prompt_ids"], entry["token_ids"])
        different += not same
        print(f"{'same' if same else 'DIFFERENT'}: {entry['prompt'][:60]!r}")
    return different


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
