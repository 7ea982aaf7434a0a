"""One token of a random Llama behind a static cache, by transformers. Arguments: sizes as JSON, how torch compiles.

Says hello in a line of JSON, then answers each line of its input with the milliseconds of a forward. It needs torch
and transformers only, so that any environment that has them runs it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

WARM, RUNS, REPEATS = 4, 20, 3
EAGER = "eager"


def main() -> None:
    sizes, mode = json.loads(sys.argv[1]), sys.argv[2]
    try:
        import torch
        import transformers
    except ImportError as error:
        _say(error=f"{error}; give a Python that has torch and transformers with --peer-python")
        return
    try:
        start = time.perf_counter()
        step, wait = make_step(sizes, mode)
        for _ in range(WARM):
            step()
        wait()
    except Exception as error:  # noqa: BLE001 - the reason goes to the one who asked
        _say(error=f"{type(error).__name__}: {error}"[:1500])
        return
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    _say(engine="transformers", mode=mode, versions=versions, first_s=round(time.perf_counter() - start, 1))
    for _ in sys.stdin:
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            for _ in range(RUNS):
                step()
            wait()
            times.append((time.perf_counter() - start) / RUNS * 1e3)
        _say(ms=min(times), times=times)


def make_step(sizes: dict[str, Any], mode: str) -> tuple[Callable[[], Any], Callable[[], None]]:
    """A forward of one token behind `past` others, and what waits for it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_default_dtype(torch.bfloat16)
    config = LlamaConfig(
        vocab_size=sizes["vocab"],
        hidden_size=sizes["hidden"],
        intermediate_size=sizes["inner"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"],
        head_dim=sizes["head_dim"],
        max_position_embeddings=sizes["capacity"],
        tie_word_embeddings=sizes["tied"],
    )
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    cache, past = static_cache(config, sizes["capacity"], device), sizes["past"]

    def forward(token: Any, place: Any) -> Any:
        return model(
            input_ids=token, past_key_values=cache, position_ids=place[None], cache_position=place, use_cache=True
        ).logits

    token, place = torch.zeros((1, 1), dtype=torch.long, device=device), torch.tensor([past], device=device)
    with torch.inference_mode():
        forward(token.expand(1, past), torch.arange(past, device=device))
    chosen = forward if mode == EAGER else torch.compile(forward, mode=mode)

    def step() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        with torch.inference_mode():
            return chosen(token, place)

    return step, (torch.cuda.synchronize if device == "cuda" else lambda: None)


def static_cache(config: Any, capacity: int, device: str) -> Any:
    """A cache of a fixed size; older versions of transformers want to know more."""
    import torch
    from transformers import StaticCache

    try:
        return StaticCache(config=config, max_cache_len=capacity)
    except TypeError:
        return StaticCache(config=config, max_batch_size=1, max_cache_len=capacity, device=device, dtype=torch.bfloat16)


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
