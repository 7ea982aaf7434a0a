"""One block of DSpark in numpy float64, written from its published description and not from the module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

type Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shape:
    """A drafter. `ids` are the tokens of its head's rows; `w1_rows` is `vocab` or as many as there are ids."""

    hidden: int = 32
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    inner: int = 48
    eps: float = 1e-5
    theta: float = 1e4
    vocab: int = 64
    block: int = 5
    mask: int = 61
    taps: int = 2
    rank: int = 16
    markov: str = "vanilla"
    order: str = "before_rope"
    interleaved: bool = False
    anchor_first: bool = True
    confidence_with_markov: bool = True
    temperatures: tuple[float, ...] = ()
    ids: tuple[int, ...] = tuple(range(60))
    w1_rows: int = 64


@dataclass(frozen=True, slots=True)
class Drafted:
    """Drafts of one block, greedy, and the chance of each to land given those before."""

    tokens: list[int]
    confidences: list[float]


class Oracle:
    """`tensors` by their published names; `embedding` and `head` are the target's [V, D]."""

    def __init__(self, shape: Shape, tensors: Mapping[str, NDArray[np.float32]], embedding: Array, head: Array):
        self.shape = shape
        self.w = {name: value.astype(np.float64) for name, value in tensors.items()}
        self.embedding, self.head = embedding, head[list(shape.ids)]

    def draft(self, features: Array, anchor: int) -> Drafted:
        """The block behind a context. Shape: features [n, taps * D], of positions 0 to n - 1; the anchor is at n."""
        s, w = self.shape, self.w
        rows = s.block + (not s.anchor_first)
        context = self._norm(features @ w["fc.weight"].T, "hidden_norm")
        h = self.embedding[[anchor] + [s.mask] * (rows - 1)]
        for layer in range(s.layers):
            h = self._layer(f"layers.{layer}", h, context)
        return self._walk(self._norm(h, "norm")[rows - s.block :], anchor)

    def _layer(self, name: str, h: Array, context: Array) -> Array:
        """Context rows enter keys and values as they are; the block's rows through the layer's norm."""
        w, n = self.w, self._norm(h, f"{name}.input_layernorm")
        both = np.concatenate([context, n])
        start, total = len(context), len(context) + len(h)
        q = self._heads(n @ w[f"{name}.self_attn.q_proj.weight"].T, f"{name}.self_attn.q_norm", range(start, total))
        k = self._heads(both @ w[f"{name}.self_attn.k_proj.weight"].T, f"{name}.self_attn.k_norm", range(total))
        v = (both @ w[f"{name}.self_attn.v_proj.weight"].T).reshape(total, -1, self.shape.head_dim)
        h = h + self._attend(q, k, v) @ w[f"{name}.self_attn.o_proj.weight"].T
        m = self._norm(h, f"{name}.post_attention_layernorm")
        gate, up = m @ w[f"{name}.mlp.gate_proj.weight"].T, m @ w[f"{name}.mlp.up_proj.weight"].T
        return h + (gate * _sigmoid(gate) * up) @ w[f"{name}.mlp.down_proj.weight"].T

    def _attend(self, q: Array, k: Array, v: Array) -> Array:
        """Every row sees every key. Shapes: q [B, N, H], k and v [T, K, H] -> [B, N * H]."""
        share = self.shape.heads // self.shape.kv_heads
        out = np.empty_like(q)
        for head in range(self.shape.heads):
            score = q[:, head] @ k[:, head // share].T / np.sqrt(self.shape.head_dim)
            weight = np.exp(score - score.max(1, keepdims=True))
            out[:, head] = weight / weight.sum(1, keepdims=True) @ v[:, head // share]
        return out.reshape(len(q), -1)

    def _heads(self, x: Array, norm: str, positions: range) -> Array:
        x = x.reshape(len(x), -1, self.shape.head_dim)
        if self.shape.order == "before_rope":
            return self._rotated(self._norm(x, norm), positions)
        x = self._rotated(x, positions)
        return self._norm(x, norm) if self.shape.order == "after_rope" else x

    def _rotated(self, x: Array, positions: range) -> Array:
        """Pairs of dimensions as complex numbers, turned by position / theta^(2i/H)."""
        half = self.shape.head_dim // 2
        angle = np.outer(np.array(positions), self.shape.theta ** (-np.arange(half) / half))
        if self.shape.interleaved:
            turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None]
            return np.stack([turned.real, turned.imag], -1).reshape(x.shape)
        turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)[:, None]
        return np.concatenate([turned.real, turned.imag], -1)

    def _norm(self, x: Array, name: str) -> Array:
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.shape.eps) * self.w[f"{name}.weight"]

    def _walk(self, h: Array, anchor: int) -> Drafted:
        """Draft after draft: each biased by the token before it, the first by the anchor."""
        done = Drafted([], [])
        previous, state = anchor, np.zeros(self.shape.rank)
        for place, row in enumerate(h):
            e = self._embedded(previous)
            features, state = self._markov(e, row, state)
            done.confidences.append(self._confidence(e, row, place))
            w2 = self.w["markov_head.markov_w2.weight"][: len(self.shape.ids)]
            logits = self.head @ row + w2 @ features
            previous = self.shape.ids[int(np.argmax(logits))]
            done.tokens.append(previous)
        return done

    def _embedded(self, token: int) -> Array:
        w1 = self.w["markov_head.markov_w1.weight"]
        if self.shape.w1_rows == self.shape.vocab:
            return w1[token]
        return w1[self.shape.ids.index(token)] if token in self.shape.ids else np.zeros(self.shape.rank)

    def _markov(self, e: Array, row: Array, state: Array) -> tuple[Array, Array]:
        w, at = self.w, "markov_head"
        if self.shape.markov == "gated":
            gate = w[f"{at}.gate_proj.weight"] @ np.concatenate([row, e]) + w[f"{at}.gate_proj.bias"]
            return _sigmoid(gate) * e, state
        if self.shape.markov == "rnn":
            z = w[f"{at}.joint_proj.weight"] @ np.concatenate([state, e, row]) + w[f"{at}.joint_proj.bias"]
            g, c, o = z.reshape(3, -1)
            return np.tanh(o), _sigmoid(g) * state + (1 - _sigmoid(g)) * np.tanh(c)
        return e, state

    def _confidence(self, e: Array, row: Array, place: int) -> float:
        x = np.concatenate([row, e]) if self.shape.confidence_with_markov else row
        raw = self.w["confidence_head.proj.weight"][0] @ x + self.w["confidence_head.proj.bias"][0]
        temperature = self.shape.temperatures[place] if self.shape.temperatures else 1.0
        return float(_sigmoid(raw / temperature))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))
