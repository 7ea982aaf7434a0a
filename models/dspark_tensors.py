"""The published names and shapes of a DSpark drafter's tensors."""

from __future__ import annotations

from tfjax.models.blocks.markov import MarkovKind
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.family import Source


def sources(config: DSparkConfig) -> dict[str, tuple[Source, ...]]:
    """Which checkpoint tensors make each parameter, by the published names; `join` gives the rest."""
    c = config
    found: dict[str, tuple[Source, ...]] = {
        "fc.weight": (Source("fc.weight", (c.hidden, len(c.taps) * c.target_hidden)),),
        "context_norm.weight": (Source("hidden_norm.weight", (c.hidden,)),),
        "norm.weight": (Source("norm.weight", (c.hidden,)),),
    }
    for i in range(c.layers):
        found |= {f"layers.{i}.{at}": parts for at, parts in _layer_sources(c, f"layers.{i}").items()}
    found |= _markov_sources(c)
    if c.confidence:
        size = c.hidden + (c.markov_rank if c.confidence_with_markov else 0)
        found["confidence_head.weight"] = (Source("confidence_head.proj.weight", (1, size)),)
        found["confidence_head.bias"] = (Source("confidence_head.proj.bias", (1,)),)
    if c.own_embedding:
        found["embedding"] = (Source("embed_tokens.weight", (c.vocab, c.hidden)),)
    if c.own_head:
        found["head"] = (Source("lm_head.weight", (c.draft_vocab, c.hidden)),)
    return found


def _layer_sources(c: DSparkConfig, name: str) -> dict[str, tuple[Source, ...]]:
    width, kv_width = c.heads * c.head_dim, c.kv_heads * c.head_dim
    attention, mlp = f"{name}.self_attn", f"{name}.mlp"
    found: dict[str, tuple[Source, ...]] = {
        "attention_norm.weight": (Source(f"{name}.input_layernorm.weight", (c.hidden,)),),
        "mlp_norm.weight": (Source(f"{name}.post_attention_layernorm.weight", (c.hidden,)),),
        "attention.q.weight": (Source(f"{attention}.q_proj.weight", (width, c.hidden)),),
        "attention.kv.weight": tuple(
            Source(f"{attention}.{part}.weight", (kv_width, c.hidden)) for part in ("k_proj", "v_proj")
        ),
        "attention.out.weight": (Source(f"{attention}.o_proj.weight", (c.hidden, width)),),
        "mlp.gate_up.weight": tuple(
            Source(f"{mlp}.{part}.weight", (c.inner, c.hidden)) for part in ("gate_proj", "up_proj")
        ),
        "mlp.down.weight": (Source(f"{mlp}.down_proj.weight", (c.hidden, c.inner)),),
    }
    if c.qk_norm is not QKNorm.NONE:
        for norm in ("q_norm", "k_norm"):
            found[f"attention.{norm}.weight"] = (Source(f"{attention}.{norm}.weight", (c.head_dim,)),)
    return found


def _markov_sources(c: DSparkConfig) -> dict[str, tuple[Source, ...]]:
    rank, name = c.markov_rank, "markov_head"
    found: dict[str, tuple[Source, ...]] = {
        "markov.w1": (Source(f"{name}.markov_w1.weight", (c.markov_rows, rank)),),
        "markov.w2": (Source(f"{name}.markov_w2.weight", (c.draft_vocab, rank)),),
    }
    products: dict[MarkovKind, tuple[tuple[str, str, int, int], ...]] = {
        MarkovKind.VANILLA: (),
        MarkovKind.GATED: (("gate", "gate_proj", rank, c.hidden + rank),),
        MarkovKind.RNN: (("joint", "joint_proj", 3 * rank, 2 * rank + c.hidden),),
    }
    for parameter, tensor, size_out, size_in in products[c.markov]:
        found[f"markov.{parameter}.weight"] = (Source(f"{name}.{tensor}.weight", (size_out, size_in)),)
        found[f"markov.{parameter}.bias"] = (Source(f"{name}.{tensor}.bias", (size_out,)),)
    return found
