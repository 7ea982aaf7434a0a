"""What is refused before a weight is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.checkpoints.hf_files import write_directory
from tests.engine.drafters.drafter_files import TOKENIZER
from tests.engine.drafters.dspark_files import LIQUID, TARGET, TARGET_CONFIG, dspark_arrays, dspark_directory
from tfjax.checkpoints import CheckpointError, open_checkpoint
from tfjax.engine.drafters import loading
from tfjax.engine.drafters.dspark_config import AS_STORED, DSparkOptions, FittingDSpark, fit_dspark
from tfjax.engine.drafters.loading import UnusableDrafter, load_drafter
from tfjax.engine.table import vocabulary_hash
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.dspark_config import DSparkConfig


def fit(path: Path, options: DSparkOptions = AS_STORED, target: Any = TARGET) -> FittingDSpark:
    checkpoint = open_checkpoint(path)
    return fit_dspark(checkpoint, DSparkConfig.from_hf(checkpoint.config), target, TOKENIZER, options)


def nested(**changes: Any) -> dict[str, Any]:
    return LIQUID | {"dflash_config": LIQUID["dflash_config"] | changes}


def zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


def test_what_only_the_tensors_tell(tmp_path: Path) -> None:
    plain = fit(dspark_directory(tmp_path / "plain"))
    assert (plain.config.own_embedding, plain.config.own_head, plain.config.markov_rows) == (False, False, 264)
    ends = {"embed_tokens.weight": zeros(264, 40), "lm_head.weight": zeros(264, 40)}
    own = fit(dspark_directory(tmp_path / "own", **ends))
    assert (own.config.own_embedding, own.config.own_head) == (True, True)
    reduced = LIQUID | {"draft_vocab_size": 24}
    w1 = {"markov_head.markov_w1.weight": zeros(24, 16)}
    assert fit(dspark_directory(tmp_path / "w1", config=reduced, **w1)).config.markov_rows == 24
    assert fit(dspark_directory(tmp_path / "w1v", config=reduced)).config.markov_rows == 264


def test_a_confidence_head_that_the_config_does_not_mention(tmp_path: Path) -> None:
    silent = {key: value for key, value in LIQUID.items() if key != "enable_confidence_head"}
    none = {"confidence_head.proj.weight": None, "confidence_head.proj.bias": None}
    assert fit(dspark_directory(tmp_path / "with", config=silent)).config.confidence
    assert not fit(dspark_directory(tmp_path / "without", config=silent, **none)).config.confidence
    assert fit(dspark_directory(tmp_path / "stated", **none)).config.confidence
    off = LIQUID | {"enable_confidence_head": False}
    assert not fit(dspark_directory(tmp_path / "off", config=off)).config.confidence


def test_the_order_of_norm_and_rotation_can_be_set(tmp_path: Path) -> None:
    path = dspark_directory(tmp_path)
    assert fit(path).config.qk_norm is QKNorm.BEFORE_ROPE
    assert fit(path, DSparkOptions(qk_norm=QKNorm.AFTER_ROPE)).config.qk_norm is QKNorm.AFTER_ROPE
    none = fit(path, DSparkOptions(qk_norm=QKNorm.NONE))
    assert none.config.qk_norm is QKNorm.NONE
    assert "layers.1.self_attn.k_norm.weight" in none.beside


@pytest.mark.parametrize("rows", [260, 264, 264 + 256])
def test_rows_of_padding_may_differ(rows: int, tmp_path: Path) -> None:
    assert fit(dspark_directory(tmp_path, config=LIQUID | {"vocab_size": rows})).config.vocab == rows


def test_the_right_hash_is_accepted(tmp_path: Path) -> None:
    path = dspark_directory(tmp_path, config=LIQUID | {"vocabulary_sha256": vocabulary_hash(TOKENIZER)})
    assert fit(path).config.vocabulary_sha256 == vocabulary_hash(TOKENIZER)


def test_an_own_embedding_may_have_another_width(tmp_path: Path) -> None:
    config = LIQUID | {"hidden_size": 32, "target_hidden_size": 40}
    ends = {"embed_tokens.weight": zeros(264, 32), "lm_head.weight": zeros(264, 32)}
    fitting = fit(dspark_directory(tmp_path / "stated", config=config, **ends))
    assert (fitting.config.hidden, fitting.config.target_hidden) == (32, 40)
    silent = LIQUID | {"hidden_size": 32}
    fitting = fit(dspark_directory(tmp_path / "silent", config=silent, **ends, **{"fc.weight": zeros(32, 80)}))
    assert (fitting.config.hidden, fitting.config.target_hidden) == (32, 40)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a vocabulary beyond padding": (
        {"vocab_size": 521},
        {},
        "vocab_size is 521; the model has 260 tokens in 264 rows",
    ),
    "a vocabulary that lacks tokens": ({"vocab_size": 259}, {}, "vocab_size is 259; the model has 260 tokens"),
    "other tokens by hash": ({"vocabulary_sha256": "ab"}, {}, "vocabulary_sha256 is ab, of other tokens"),
    "a mask token that the model has not": (
        nested(mask_token_id=264) | {"vocab_size": 300},
        {},
        "mask_token_id is 264; a token of the model is expected, below 264",
    ),
    "another depth": (nested(num_target_layers=5), {}, "num_target_layers is 5; the model has 4"),
    "the last layer": (nested(target_layer_ids=[0, 3]), {}, "layer 3; 0 to 2 is expected for a model of 4 layers"),
    "a layer below": (nested(target_layer_ids=[-2, 1]), {}, "layer -2; 0 to 2 is expected"),
    "the embeddings": (nested(target_layer_ids=[-1, 1]), {}, r"the embeddings \(-1.*0 to 2 is expected"),
    "another width": (
        {},
        {"fc.weight": zeros(40, 96)},
        r"2 tapped layers of this one's width 40 are 80; tensor fc.weight; found \(40, 96\); expected \(40, 80\)",
    ),
    "more tapped layers than columns": (
        nested(target_layer_ids=[0, 1, 2]),
        {"fc.weight": zeros(40, 80)},
        r"3 tapped layers of this one's width 40 are 120.*expected \(40, 120\)",
    ),
    "no embedding of its own width": (
        {"hidden_size": 32, "target_hidden_size": 40},
        {},
        r"hidden_size is 32 and the model's 40.*tensor embed_tokens.weight; expected this tensor, or hidden_size 40",
    ),
    "no head of its own width": (
        {"hidden_size": 32, "target_hidden_size": 40},
        {"embed_tokens.weight": zeros(264, 32)},
        r"hidden_size is 32 and the model's 40.*tensor lm_head.weight",
    ),
    "another rank": (
        {"markov_rank": 8},
        {"markov_head.markov_w1.weight": zeros(264, 16)},
        r"markov_rank\); tensor markov_head.markov_w1.weight; found \(264, 16\); expected \(264, 8\)",
    ),
    "another rank, reduced": (
        {"draft_vocab_size": 24},
        {"markov_head.markov_w1.weight": zeros(25, 16)},
        r"found \(25, 16\); expected \(264, 16\) or with 24 rows",
    ),
}


@pytest.mark.parametrize(("changes", "tensors", "words"), REFUSED.values(), ids=REFUSED)
def test_one_that_does_not_fit(
    changes: dict[str, Any], tensors: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dspark_directory(tmp_path, config=LIQUID | changes, **tensors)
    monkeypatch.setattr(loading, "read_dspark", None)
    with pytest.raises(UnusableDrafter, match=words) as refusal:
        load_drafter(path, TARGET, TOKENIZER, "float32", 4, lambda phase, share: None)
    assert str(refusal.value).startswith("--drafter: ")


@pytest.mark.parametrize("bits", [4, 6, 32])
def test_other_bits_are_refused_with_the_reason(bits: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"--drafter-bits is {bits}; 16 or 8 is expected: fewer bits land fewer"):
        fit(dspark_directory(tmp_path), DSparkOptions(bits=bits))


def test_a_file_of_other_bits_is_refused(tmp_path: Path) -> None:
    """The tiny drafter with one matrix that MLX packed in 4 bits."""
    name = "layers.0.mlp.down_proj"
    packed = {
        f"{name}.weight": np.zeros((40, 64 * 4 // 32), np.uint32),
        f"{name}.scales": np.ones((40, 1), np.float32),
        f"{name}.biases": np.ones((40, 1), np.float32),
    }
    config = LIQUID | {"intermediate_size": 64, "quantization": {"group_size": 64, "bits": 4}}
    path = write_directory(tmp_path, config=config, tensors=dspark_arrays(LIQUID | {"intermediate_size": 64}) | packed)
    with pytest.raises(CheckpointError, match=rf"8 bits, since fewer .*{name}.weight; found 4 bits; expected 8 bits"):
        fit(path)


def test_another_target_of_the_same_width(tmp_path: Path) -> None:
    """A vocabulary of the same tokens in far more rows is another model's."""
    more = replace(TARGET, config=replace(TARGET_CONFIG, vocab=264 + 257))
    with pytest.raises(ValueError, match="vocab_size is 264; the model has 260 tokens in 521 rows"):
        fit(dspark_directory(tmp_path), target=more)
