"""Which tensor is packed how, and where MLX expects it."""

from __future__ import annotations

import pytest

from tfjax.checkpoints.affine import AffineForm
from tfjax.checkpoints.mlx_rules import Forms, Place, Role, mlx_place, role_of

LAYER = "model.layers.3."
MOE, DENSE = "Lfm2MoeForCausalLM", "Lfm2ForCausalLM"


@pytest.mark.parametrize(
    ("name", "shape", "role"),
    [
        (LAYER + "self_attn.q_proj.weight", (64, 64), Role.MATRIX),
        (LAYER + "mlp.gate_proj.weight", (64, 64), Role.MATRIX),
        (LAYER + "conv.in_proj.weight", (192, 64), Role.MATRIX),
        (LAYER + "feed_forward.experts.2.w1.weight", (64, 64), Role.MATRIX),
        ("fc.weight", (64, 320), Role.MATRIX),
        ("markov_head.markov_w1.weight", (128, 32), Role.MATRIX),
        ("head_proj.weight", (64, 64), Role.MATRIX),
        (LAYER + "feed_forward.gate.weight", (4, 64), Role.ROUTER),
        ("model.embed_tokens.weight", (128, 64), Role.EMBEDDING),
        ("embed_tokens.weight", (128, 64), Role.EMBEDDING),
        ("lm_head.weight", (128, 64), Role.EMBEDDING),
        (LAYER + "operator_norm.weight", (64,), Role.PLAIN),
        (LAYER + "self_attn.q_layernorm.weight", (64,), Role.PLAIN),
        (LAYER + "conv.conv.weight", (64, 1, 3), Role.PLAIN),
        (LAYER + "feed_forward.expert_bias", (4,), Role.PLAIN),
        (LAYER + "self_attn.q_proj.bias", (64,), Role.PLAIN),
        ("confidence_head.proj.weight", (1, 96), Role.PLAIN),
        ("confidence_head.proj.bias", (1,), Role.PLAIN),
        ("d2t", (64,), Role.PLAIN),
        ("codebook", (128, 64), Role.PLAIN),
        ("layers.0.mix.weight", (64,), Role.PLAIN),
        ("layers.0.mix.weight", (2, 64, 64), Role.PLAIN),
        ("hidden_norm.weight", (64,), Role.PLAIN),
    ],
)
def test_roles(name: str, shape: tuple[int, ...], role: Role) -> None:
    assert role_of(name, shape) is role


def test_each_role_has_its_form() -> None:
    four, six, eight = AffineForm(4, 64), AffineForm(6, 64), AffineForm(8, 64)
    forms = Forms(matrix=four, router=eight, embedding=six)
    names = ["fc.weight", LAYER + "feed_forward.gate.weight", "lm_head.weight", "norm.weight"]
    assert [forms.of(name, (64, 64)) for name in names] == [four, eight, six, None]
    kept = Forms(matrix=four, router=None, embedding=None)
    assert [kept.of(name, (64, 64)) for name in names] == [four, None, None, None]


@pytest.mark.parametrize(
    ("architecture", "name", "place"),
    [
        (MOE, LAYER + "feed_forward.experts.2.w1.weight", Place(LAYER + "feed_forward.switch_mlp.gate_proj.weight", 2)),
        (MOE, LAYER + "feed_forward.experts.0.w2.weight", Place(LAYER + "feed_forward.switch_mlp.down_proj.weight", 0)),
        (MOE, LAYER + "feed_forward.w3.weight", Place(LAYER + "feed_forward.up_proj.weight")),
        (MOE, LAYER + "conv.conv.weight", Place(LAYER + "conv.conv.weight", turned=True)),
        (MOE, LAYER + "feed_forward.gate.weight", Place(LAYER + "feed_forward.gate.weight")),
        (DENSE, LAYER + "feed_forward.w3.weight", Place(LAYER + "feed_forward.w3.weight")),
        (DENSE, LAYER + "conv.conv.weight", Place(LAYER + "conv.conv.weight", turned=True)),
        ("LlamaForCausalLM", LAYER + "conv.conv.weight", Place(LAYER + "conv.conv.weight")),
        ("Lfm2DSparkDraftModel", "fc.weight", Place("fc.weight")),
    ],
)
def test_places(architecture: str, name: str, place: Place) -> None:
    assert mlx_place(architecture, name) == place
