"""What a run starts from: what is held out, shapes, and what does not go together."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.train import dspark_run, tiny_run
from tests.train.dspark_run import different_replies, settings
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.options import ConfigError
from tfjax.train.dense_target import read_target
from tfjax.train.dspark_files import save, to_hf
from tfjax.train.dspark_material import Material, Written, gather, is_held_out, rows_of, tapped_layers
from tfjax.train.dspark_model import random_params
from tfjax.train.shards import UnusableReplies
from tfjax.train.small_data import Document


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return dspark_run.base(tmp_path)


def gathered(base: Path, *flags: str) -> Material:
    return gather(settings(base, *flags), lambda _text, _share: None)


def test_a_prompt_is_held_out_in_every_directory_and_about_one_in_fifty_is() -> None:
    prompts = [(i, i // 7, 5) for i in range(5000)]
    assert 70 < sum(map(is_held_out, prompts)) < 130
    # The same ones for ever: a drafter trained elsewhere has not learned what is measured here.
    assert [i for i in range(200) if is_held_out([i, 5, 7])] == [67, 94, 128]


def test_what_is_held_out_is_measured_and_not_learned(base: Path) -> None:
    material = gathered(base)
    held = [reply for reply in different_replies() if is_held_out(reply.prompt)]
    assert held
    assert material.counts["replies"] == 100 - len(held)
    marks = {reply.prompt[:2] for reply in held}
    learned = {tuple(row[:2]) for row in material.rows.token.tolist()}
    assert not marks & learned
    measured = [rows.packed.token for rows in material.measured.values()]
    assert {tuple(row[:2]) for tokens in measured for row in tokens.tolist()} == marks


def test_what_is_learned_keeps_the_temperature_that_drew_it(base: Path) -> None:
    material = gathered(base)
    kept = [reply for reply in different_replies() if not is_held_out(reply.prompt)]
    drawn = {(*reply.prompt, *reply.reply): reply.temperature for reply in kept}
    found = {}
    packed, temperatures = material.rows
    for tokens, segments, temperature in zip(packed.token, packed.segment, temperatures, strict=True):
        for number in range(1, segments.max() + 1):
            found[tuple(tokens[segments == number].tolist())] = float(temperature)
    assert found == drawn
    assert material.counts["temperatures"] == {
        f"{temperature:g}": sum(len(reply.reply) for reply in kept if reply.temperature == temperature)
        for temperature in (0.0, 1.0)
    }


def test_greedy_and_drawn_replies_are_measured_apart(base: Path) -> None:
    tiny_run.write_replies(base / "more", base / "target", different_replies(6), prompts="HumanEval 1")
    measured = gathered(base, "--held-out", str(base / "more")).measured
    assert "HumanEval, greedy" in measured
    assert measured["HumanEval, greedy"].temperature.tolist() == [0.0] * len(measured["HumanEval, greedy"].temperature)
    assert set(measured["HumanEval, sampled"].temperature.tolist()) == {1.0}


def test_humaneval_is_never_learned(base: Path) -> None:
    other = tiny_run.write_replies(base / "he", base / "target", different_replies(6), prompts="HumanEval 1")
    with pytest.raises(UnusableReplies, match=r"he holds the replies to HumanEval.*give them as --held-out"):
        gathered(base, "--replies", str(base / "replies"), str(other))


@pytest.mark.parametrize("flag", ["--replies", "--held-out"])
def test_replies_of_another_model_are_refused(base: Path, flag: str) -> None:
    other = tiny_run.write_replies(base / "foreign", base / "target", model="other")
    with pytest.raises(ValueError, match="'other'"):
        gathered(base, "--replies", str(base / "replies"), flag, str(other))


def test_rows_have_one_temperature_each() -> None:
    replies = [
        Written(Document(np.full(10, i, np.int32), 2, greedy=False, held_out=True), temperature)
        for i, temperature in enumerate([0.8, 0.7, 0.8, 0.7, 0.8])
    ]
    rows = rows_of(replies, 32)
    assert rows.temperature.tolist() == pytest.approx([0.7, 0.8])
    assert [sorted(set(row.tolist())) for row in rows.packed.token] == [[0, 1, 3], [0, 2, 4]]


def test_shapes_are_the_asked_ones_and_the_targets(base: Path) -> None:
    config = gathered(base, "--qk-norm-order", "after_rope", "--rope", "interleaved", "--mask-token", "7").config
    assert (config.hidden, config.heads, config.kv_heads, config.head_dim, config.norm_eps) == (24, 4, 2, 8, 1e-5)
    assert (config.layers, config.inner, config.block, config.draft_vocab, config.markov_rows) == (1, 16, 3, 40, 40)
    assert (config.qk_norm, config.interleaved, config.mask_token) == (QKNorm.AFTER_ROPE, True, 7)
    assert config.vocabulary_sha256 is not None
    assert not gathered(base).config.interleaved


def test_liquids_targets_have_interleaved_drafters(base: Path) -> None:
    from tfjax.train.dspark_material import dspark_config

    material = gathered(base)
    liquid = dataclasses.replace(material.target, drafter="Lfm2DSparkDraftModel")
    assert dspark_config(settings(base), liquid, 0, "").interleaved
    assert not dspark_config(settings(base, "--rope", "half-split"), liquid, 0, "").interleaved


@pytest.mark.parametrize(
    ("asked", "layers", "taps"),
    [
        (3, 30, (1, 14, 27)),
        (5, 36, (1, 9, 17, 25, 33)),
        (1, 2, (0,)),
        (2, 4, (0, 2)),
        (3, 4, (0, 1, 2)),
        (2, 6, (1, 3)),
        ((4, 0), 6, (4, 0)),
    ],
)
def test_taps_are_spread_over_the_target(asked: int | tuple[int, ...], layers: int, taps: tuple[int, ...]) -> None:
    assert tapped_layers(asked, layers) == taps


@pytest.mark.parametrize(("asked", "layers"), [(4, 4), (2, 2), (1, 1), ((5,), 6), ((0, 9), 6)])
def test_layers_that_no_server_captures_are_refused(asked: int | tuple[int, ...], layers: int) -> None:
    with pytest.raises(ConfigError, match="--taps"):
        tapped_layers(asked, layers)


def test_a_mask_is_a_token(base: Path) -> None:
    with pytest.raises(ConfigError, match="--mask-token: 260 is no token; the last one is 259"):
        gathered(base, "--mask-token", "260")


def test_a_drafter_that_would_be_too_large_is_refused(base: Path) -> None:
    with pytest.raises(ValueError, match=r"more than --max-mib 0.01 .*layers"):
        gathered(base, "--max-mib", "0.01", "--inner", "4096")


def test_replies_that_are_all_held_out_are_refused(base: Path) -> None:
    held = [reply for reply in different_replies() if is_held_out(reply.prompt)]
    tiny_run.write_replies(base / "held", base / "target", held)
    with pytest.raises(ValueError, match="are held out; write more"):
        gathered(base, "--replies", str(base / "held"))


def test_a_drafter_to_start_from_decides_what_can_be_drafted(base: Path) -> None:
    flags = ("--mask-token", "7")
    material = gathered(base, *flags)
    ids = np.arange(100, 140, dtype=np.int32)
    target = read_target(material.checkpoint)
    params = random_params(material.config, target, 9)
    save(base / "start", params, material.config, ids, 16, to_hf(material.config, material.target))
    found = gathered(base, *flags, "--start-from", str(base / "start"))
    assert material.start is None
    assert found.start is not None
    assert found.draft_ids.tolist() == ids.tolist()
    assert material.draft_ids.tolist() != ids.tolist()
    with pytest.raises(ValueError, match=r"--start-from: .*give --mask-token 7"):
        gathered(base, "--mask-token", "8", "--start-from", str(base / "start"))
