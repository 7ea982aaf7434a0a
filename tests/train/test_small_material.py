"""What a run starts from, and everything that is refused before it starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.train import tiny_run
from tfjax.checkpoints import CheckpointError
from tfjax.train.small_material import Material, fingerprint, gather


def nothing(phase: str, fraction: float) -> None:
    """Progress that nobody watches."""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny_run.write_replies(tmp_path / "replies", tiny_run.write_target(tmp_path / "target"))
    return tmp_path


def gathered(base: Path, *flags: str) -> Material:
    return gather(tiny_run.settings(base, *flags), nothing)


def test_rows_hold_what_is_learned_and_the_rest_is_measured(base: Path) -> None:
    material = gathered(base)
    held_out = [reply for reply in tiny_run.replies() if reply.index % 50 == 0]
    assert [tuple(one.token) for one in material.measured["held-out replies"]] == [
        reply.prompt + reply.reply for reply in held_out
    ]
    learned = [reply for reply in tiny_run.replies() if reply.index % 50]
    assert material.counts["replies"] == len(learned) == 98
    assert material.counts["reply_tokens"] == 98 * 20
    assert material.counts["prompt_tokens"] == sum(len(reply.prompt) for reply in learned)
    assert material.counts["draft_vocab_coverage"] == 1
    assert material.counts["replies"] == 98
    assert int((material.rows.segment > 0).sum()) == sum(len(reply.prompt + reply.reply) for reply in learned)
    assert set(range(10, 40)) <= set(material.draft_ids.tolist())


def test_shapes_come_from_the_flags_and_the_target(base: Path) -> None:
    material = gathered(base)
    config = material.config
    assert config.vocabulary_sha256 == material.counts["recipes"][0]["vocabulary"]
    assert (config.vocab, config.target_hidden, config.context) == (260, 24, 256)
    assert (config.norm_eps, config.rope_theta) == (1e-5, 10000.0)
    assert (config.hidden, config.inner, config.layers, config.heads, config.kv_heads, config.head_dim) == (
        *(16, 24, 2, 2, 1),
        8,
    )
    assert config.projected_head
    assert not gathered(base, "--head", "own").config.projected_head
    assert config.draft_vocab == 40
    assert gathered(base, "--draft-vocab", "0").config.draft_vocab == 260
    assert gathered(base, "--draft-vocab", "5000").config.draft_vocab == 260


@pytest.mark.parametrize("epochs", ["1", "2", "0.001", "1.03"])
def test_steps_are_a_whole_number_of_dispatches(base: Path, epochs: str) -> None:
    settings = tiny_run.settings(base, "--epochs", epochs)
    material = gather(settings, nothing)
    rows = len(material.rows.token)
    exact = float(epochs) * rows / 4
    assert material.steps(settings) % 2 == 0
    assert exact <= material.steps(settings) < max(1, exact) + 2


def test_more_replies_are_measured_under_their_names(base: Path) -> None:
    some = tiny_run.replies(3)
    tiny_run.write_replies(base / "problems", base / "target", some, prompts="HumanEval 1")
    tiny_run.write_replies(base / "chats", base / "target", some)
    material = gathered(base, "--measure", str(base / "problems"), "--measure", str(base / "chats"))
    assert {name: len(found) for name, found in material.measured.items()} == {
        "held-out replies": 2,
        "HumanEval": 3,
        "chats": 3,
    }
    assert material.counts["replies"] == 98


def test_replies_of_several_directories_are_learned_together(base: Path) -> None:
    tiny_run.write_replies(base / "more", base / "target", tiny_run.replies(51), seed=2)
    material = gathered(base, "--replies", str(base / "replies"), "--replies", str(base / "more"))
    assert material.counts["replies"] == 98 + 49
    assert [recipe["seed"] for recipe in material.counts["recipes"]] == [1, 2]
    assert len(material.measured["held-out replies"]) == 4


def test_replies_to_human_eval_train_nothing(base: Path) -> None:
    tiny_run.write_replies(base / "problems", base / "target", prompts="HumanEval 1")
    with pytest.raises(ValueError, match=r"problems holds the replies to HumanEval.*--measure"):
        gathered(base, "--replies", str(base / "problems"))


def test_no_replies_directory(base: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere holds no replies.*tfjax train replies"):
        gathered(base, "--replies", str(base / "nowhere"))


def test_only_held_out_replies(base: Path) -> None:
    tiny_run.write_replies(base / "one", base / "target", tiny_run.replies(1))
    with pytest.raises(ValueError, match=r"all 1 replies of .*one are held out; write more"):
        gathered(base, "--replies", str(base / "one"))


@pytest.mark.parametrize("flag", ["--replies", "--measure"])
def test_replies_of_another_vocabulary(base: Path, flag: str) -> None:
    tiny_run.write_replies(base / "foreign", base / "target", vocabulary="abc")
    with pytest.raises(ValueError, match=r"foreign holds replies of 'target' in the vocabulary 'abc'.*--model"):
        gathered(base, flag, str(base / "foreign"))


def test_replies_of_another_model(base: Path) -> None:
    tiny_run.write_replies(base / "foreign", base / "target", model="other")
    with pytest.raises(ValueError, match=r"replies of 'other', and the drafter is to imitate 'target'"):
        gathered(base, "--replies", str(base / "foreign"))


def test_a_drafter_that_is_too_large_is_refused_before_replies_are_read(base: Path) -> None:
    for shard in (base / "replies").glob("*.safetensors"):
        shard.write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"MiB, more than --max-mib 0\.01"):
        gathered(base, "--max-mib", "0.01", "--inner", "64")


def test_a_damaged_shard_is_named(base: Path) -> None:
    for shard in (base / "replies").glob("*.safetensors"):
        shard.write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"shard-00000\.safetensors is no shard of replies"):
        gathered(base)


def test_no_such_target(base: Path) -> None:
    with pytest.raises(CheckpointError, match="no such model"):
        gathered(base, "--model", str(base / "nowhere"))


def test_the_fingerprint_follows_every_part_of_the_rows(base: Path) -> None:
    rows = gathered(base).rows
    assert fingerprint(rows) == fingerprint(gathered(base).rows)
    for name in rows._fields:
        changed = np.array(getattr(rows, name))
        changed[0, 0] += 1
        assert fingerprint(rows._replace(**{name: changed})) != fingerprint(rows), name
