"""Names of exports, and how a module is found under any of them."""

from __future__ import annotations

import pytest

from tfjax.checkpoints.stored_names import Piece, canonical_module, module_names, pieces, published_prefix


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.operator_norm.weight",
        "layers.0.operator_norm.weight",
        "language_model.model.layers.0.operator_norm.weight",
        "language_model.layers.0.operator_norm.weight",
        "model.language_model.layers.0.operator_norm.weight",
        "model.language_model.model.layers.0.operator_norm.weight",
    ],
)
def test_prefixes(name: str) -> None:
    assert published_prefix(name) == "model.layers.0.operator_norm.weight"


def test_the_head_has_no_prefix() -> None:
    assert published_prefix("language_model.lm_head.weight") == published_prefix("lm_head.weight") == "lm_head.weight"


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        ("model.layers.3.feed_forward.switch_mlp.gate_proj", "model.layers.3.feed_forward.experts.w1"),
        ("model.layers.3.feed_forward.experts.7.up_proj", "model.layers.3.feed_forward.experts.7.w3"),
        ("language_model.model.layers.3.feed_forward.down_proj", "model.layers.3.feed_forward.w2"),
        ("model.layers.3.feed_forward.gate", "model.layers.3.feed_forward.gate"),
        ("model.layers.3.mlp.gate_proj", "model.layers.3.mlp.gate_proj"),
        ("language_model.lm_head", "lm_head"),
    ],
)
def test_modules_have_one_spelling(module: str, wanted: str) -> None:
    assert canonical_module(module) == wanted


def test_an_expert_is_listed_alone_or_with_all() -> None:
    found = module_names("model.layers.3.feed_forward.experts.7.w1")
    assert found == ("model.layers.3.feed_forward.experts.7.w1", "model.layers.3.feed_forward.experts.w1")


def test_pieces_of_packed_experts() -> None:
    found = dict(pieces("Lfm2MoeForCausalLM", {"model.layers.0.feed_forward.experts.gate_up_proj": (2, 6, 4)}))
    at = "model.layers.0.feed_forward.experts"
    stored = f"{at}.gate_up_proj"
    assert found == {
        f"{at}.0.w1.weight": Piece(stored, (3, 4), 0, (0, 3)),
        f"{at}.0.w3.weight": Piece(stored, (3, 4), 0, (3, 6)),
        f"{at}.1.w1.weight": Piece(stored, (3, 4), 1, (0, 3)),
        f"{at}.1.w3.weight": Piece(stored, (3, 4), 1, (3, 6)),
    }
    assert [piece.at for piece in found.values()][:2] == [(0, slice(0, 3)), (0, slice(3, 6))]


def test_tensors_of_other_architectures_keep_their_names() -> None:
    stored = {"layers.0.feed_forward.gate_proj.weight": (2, 2)}
    assert [name for name, _ in pieces("Other", stored)] == list(stored)
    assert [name for name, _ in pieces("LlamaForCausalLM", stored)] == ["model.layers.0.feed_forward.gate_proj.weight"]


@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_unexpected_shapes_pass_to_the_check_of_shapes(shape: tuple[int, ...]) -> None:
    names = ["model.layers.0.feed_forward.experts.gate_up_proj", "model.layers.0.conv.conv.weight"]
    found = pieces("Lfm2MoeForCausalLM", dict.fromkeys(names, shape))
    assert found == [(name, Piece(name, shape)) for name in names]
