"""Packed weights in stacked form: when they are, and what becomes of those that no kernel takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from tests.engine.packed_models import quantized, silent
from tests.models.tiny_stacked import KERNELS
from tfjax.checkpoints import Checkpoint
from tfjax.checkpoints.affine import AffineForm
from tfjax.checkpoints.mlx_rules import Forms
from tfjax.engine import weights
from tfjax.engine.kernel_choice import Kernels
from tfjax.engine.packing import packed_weights
from tfjax.engine.weights import load_model
from tfjax.kernels.packed import expanded
from tfjax.kernels.routes import Route
from tfjax.models.llama import Llama
from tfjax.models.stacked_llama import StackedLlama

FOUR = Forms(AffineForm(4, 64), router=AffineForm(8, 64), embedding=AffineForm(8, 64))
SIX = Forms(AffineForm(6, 64), router=AffineForm(8, 64), embedding=AffineForm(6, 64))
SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 128,
}
DEVICE = Kernels(Route.PALLAS_GPU, "a test", stacked=True)


def llama(folder: Path, forms: Forms, **changes: Any) -> Checkpoint:
    return quantized(folder, "llama", forms=forms, **(SIZES | changes))


@pytest.fixture(params=[DEVICE, KERNELS], ids=["device", "reference"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    monkeypatch.setattr(weights, "choose_kernels", lambda *_: request.param)
    found: Kernels = request.param
    return found


def test_asked_for_they_stay_packed_in_stacks(tmp_path: Path, kernels: Kernels) -> None:
    """What a block expands is in no array of the device's memory."""
    checkpoint = llama(tmp_path, FOUR)
    model = load_model(checkpoint, "bfloat16", silent, weights="packed")
    assert isinstance(model.module, StackedLlama)
    assert model.kernels is kernels
    assert len(packed_weights(nnx.state(model.module))) == 5
    assert (model.expansion_bytes == 0) == (kernels is DEVICE)
    dense = load_model(checkpoint, "bfloat16", silent, weights="dense")
    for name in ("qkv", "out", "gate_up", "down", "embedding"):
        one, other = (getattr(each.module, name)[...] for each in (model, dense))
        assert np.array_equal(np.asarray(expanded(one)), np.asarray(other)), name


def test_codes_that_no_kernel_takes_are_expanded_in_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "choose_kernels", lambda *_: DEVICE)
    model = load_model(llama(tmp_path, SIX), "bfloat16", silent, weights="packed")
    assert isinstance(model.module, Llama)
    assert (model.kernels.route, model.kernels.stacked) == (Route.REFERENCE, False)
    assert "6-bit" in model.kernels.reason or "6 bits" in model.kernels.reason
    assert model.expansion_bytes
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(nnx.state(model.module)))


def test_a_form_that_takes_dense_weights_is_left_for_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "choose_kernels", lambda *_: DEVICE)
    model = load_model(quantized(tmp_path, "lfm2"), "bfloat16", silent, weights="packed")
    assert model.kernels.route is Route.REFERENCE
    assert "multiply dense weights" in model.kernels.reason
    assert model.expansion_bytes


@pytest.mark.parametrize(
    ("bits", "in_modules"),
    [
        ({}, False),
        ({"model.layers.1.mlp.down_proj": 8}, True),
        ({f"model.layers.{i}.self_attn.v_proj": 8 for i in range(2)}, False),
    ],
    ids=["alike", "a layer of its own", "parts of every layer"],
)
def test_layers_that_are_packed_apart_stay_in_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: dict[str, int], in_modules: bool
) -> None:
    """A stack of them would be dense; parts that differ in every layer are dense in modules too."""
    monkeypatch.setattr(weights, "choose_kernels", lambda *_: DEVICE)
    seen: list[Kernels] = []
    monkeypatch.setattr(weights, "read_model", lambda *_, kernels, **more: (seen.append(kernels), 1 / 0)[0])
    checkpoint = llama(tmp_path, FOUR)
    infos = checkpoint.tensors.infos
    changed = {f"{name}.weight": replace(infos[f"{name}.weight"], dtype=f"AFFINE{n}") for name, n in bits.items()}
    tensors = SimpleNamespace(infos={**infos, **changed})
    with pytest.raises(ZeroDivisionError):
        load_model(replace(checkpoint, tensors=tensors), "bfloat16", silent, weights="packed")
    assert (seen[0].route is Route.REFERENCE) == in_modules
    assert ("packed alike" in seen[0].reason) == in_modules
