"""The `quantization` object is understood or refused, with the key, its value and what is supported."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoints.mlx_files import USUAL
from tfjax.checkpoints import CheckpointError
from tfjax.checkpoints.affine import AffineForm
from tfjax.checkpoints.mlx_config import MlxQuantization, read_quantization, without_quantization

FILE = Path("config.json")
GATE = "model.layers.1.feed_forward.gate"


def read(**stated: Any) -> MlxQuantization:
    found = read_quantization(FILE, {"quantization": {**USUAL, **stated}})
    assert found is not None
    return found


def test_usual_form_and_entries() -> None:
    found = read(**{GATE: {"group_size": 32, "bits": 8}, "lm_head": False, "model.embed_tokens": True})
    assert found.form == AffineForm(4, 64)
    assert found.modules == {GATE: AffineForm(8, 32), "lm_head": None, "model.embed_tokens": AffineForm(4, 64)}


def test_what_an_entry_leaves_out_is_not_taken_from_the_usual_form() -> None:
    found = read(bits=6, group_size=32, a={"bits": 8}, b={"group_size": 128}, c={"mode": "affine"})
    assert found.modules == {"a": AffineForm(8, 64), "b": AffineForm(4, 128), "c": AffineForm(4, 64)}


@pytest.mark.parametrize("config", [{}, {"quantization": None}, {"quantization": {}}, {"quantization_config": None}])
def test_none(config: dict[str, Any]) -> None:
    assert read_quantization(FILE, config) is None


def test_the_copy_counts_where_it_stands_alone() -> None:
    found = read_quantization(FILE, {"quantization_config": {"bits": 8, "group_size": 32}})
    assert found == MlxQuantization(AffineForm(8, 32), {})


def test_mlx_goes_before_what_the_original_was_quantized_with() -> None:
    config = {"quantization": dict(USUAL), "quantization_config": {"quant_method": "fp8"}}
    assert read_quantization(FILE, config) == MlxQuantization(AffineForm(4, 64), {})


def test_the_config_of_the_dequantized_model() -> None:
    config = {"hidden_size": 4, "quantization": dict(USUAL), "quantization_config": dict(USUAL)}
    assert without_quantization(config) == {"hidden_size": 4}


@pytest.mark.parametrize(
    ("key", "stated"),
    [
        ("quantization_config", {"quant_method": "gptq", "bits": 4, "group_size": 128}),
        ("quantization_config", {"quant_method": "fp8"}),
        ("quantization", {"quant_method": "compressed-tensors"}),
        ("quantization", [4]),
        ("quantization", "4bit"),
    ],
)
def test_other_methods(key: str, stated: Any) -> None:
    message = rf"config\.json: weights quantized by a method that is not supported \({key}\); found .*GGUF"
    with pytest.raises(CheckpointError, match=message):
        read_quantization(FILE, {key: stated})


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"mode": "mxfp4", "group_size": 32}, r"\(quantization\.mode\); found 'mxfp4'; expected 'affine', which"),
        ({"mode": "nvfp4"}, r"found 'nvfp4'.*tfjax quantize"),
        ({GATE: {"mode": "mxfp8", "bits": 8}}, rf"\(quantization\.{GATE}\.mode\); found 'mxfp8'"),
        ({"bits": 7}, r"\(quantization\); found 7 bits; affine quantization has 2, 3, 4, 5, 6 and 8"),
        ({"group_size": 16}, r"found group size 16"),
        ({GATE: {"bits": 1}}, rf"\(quantization\.{GATE}\); found 1 bits"),
        ({"bits": "4"}, r"found bits '4', group_size 64; expected integers"),
        ({"bits": True}, r"found bits True"),
        ({"group_size": 64.0}, r"group_size 64\.0"),
        ({GATE: 8}, rf"unknown key: quantization\.{GATE}; found 8"),
        ({"linear_class": "odd"}, r"unknown key: quantization\.linear_class; found odd"),
        ({GATE: {"bits": 8, "symmetric": True}}, rf"unknown key: quantization\.{GATE}\.symmetric; found True"),
    ],
)
def test_refused(stated: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(**stated)


@pytest.mark.parametrize("missing", ["bits", "group_size"])
def test_usual_form_must_be_whole(missing: str) -> None:
    stated = {key: value for key, value in USUAL.items() if key != missing}
    with pytest.raises(CheckpointError, match=rf"quantization\.{missing} is missing"):
        read_quantization(FILE, {"quantization": stated})


NAMES = st.sampled_from(["bits", "group_size", "mode", GATE, "", ".weight"]) | st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(stated=VALUES)
def test_anything_is_understood_or_refused(stated: Any) -> None:
    with contextlib.suppress(CheckpointError):
        read_quantization(FILE, {"quantization": stated})
