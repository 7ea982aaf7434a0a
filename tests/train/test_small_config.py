"""Shapes: config.json is read by the drafter that serves it, and the file's size is counted before it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfjax.models.small_drafter import SmallDrafterConfig, sources
from tfjax.train.small_config import MIB, SmallConfig, check_size
from tfjax.train.small_settings import FLAGS

CONFIG = SmallConfig(
    vocab=49152,
    target_hidden=576,
    draft_vocab=8192,
    projected_head=False,
    hidden=256,
    inner=304,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=64,
    norm_eps=1e-5,
    rope_theta=100000.0,
    context=8192,
    vocabulary_sha256="abc",
)


def test_the_serving_config_reads_the_same_shapes() -> None:
    served = SmallDrafterConfig.from_hf(CONFIG.to_hf())
    assert (served.projected_head, served.vocabulary_sha256) == (False, "abc")
    body = served.body
    assert (served.vocab, served.target_hidden, served.draft_vocab, served.context) == (49152, 576, 8192, 8192)
    assert (body.hidden, body.inner, body.layers, body.heads, body.kv_heads, body.head_dim) == (256, 304, 2, 4, 2, 64)
    assert (body.norm_eps, body.rope) == (1e-5, CONFIG.rope)
    wanted = {part.name: part.shape for parts in sources(served).values() for part in parts}
    assert CONFIG.tensors() == wanted
    projected = replace(CONFIG, projected_head=True)
    served = SmallDrafterConfig.from_hf(projected.to_hf())
    assert served.projected_head
    assert projected.tensors() == {part.name: part.shape for parts in sources(served).values() for part in parts}


def test_sizes_by_hand() -> None:
    layer = 256 * 256 * 2 + 128 * 256 * 2 + 3 * 304 * 256 + 2 * 256
    parameters = 256 * 576 + 2 * layer + 256 + 8192 * 256
    assert CONFIG.parameters == parameters
    assert CONFIG.file_bytes == 2 * parameters + 8 * 8192
    projected = replace(CONFIG, projected_head=True)
    assert projected.parameters == parameters - 8192 * 256 + 576 * 256
    assert replace(CONFIG, draft_vocab=49152).file_bytes == 2 * (parameters + (49152 - 8192) * 256)


def test_the_default_shapes_stay_within_their_limit() -> None:
    default = {name: flag.default for name, flag in FLAGS.items()}
    shapes = {name: default[name] for name in ("layers", "hidden", "inner", "heads", "kv_heads", "draft_vocab")}
    assert default["head"] == "projected"
    check_size(replace(CONFIG, projected_head=True, **shapes), default["max_mib"])


@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        ({"inner": 3000}, "lower --layers or --inner"),
        ({"draft_vocab": 16384}, "take --head projected, lower --draft-vocab"),
        ({"target_hidden": 16384}, "lower --hidden"),
    ],
)
def test_too_large_is_refused_with_the_sizes_and_what_to_lower(changed: dict[str, int], remedy: str) -> None:
    config = replace(CONFIG, **changed)
    with pytest.raises(ValueError, match=rf"{config.file_bytes / MIB:.2f} MiB, more than --max-mib 6 .*{remedy}"):
        check_size(config, 6)


def test_the_limit_itself_is_allowed() -> None:
    check_size(CONFIG, CONFIG.file_bytes / MIB)
    with pytest.raises(ValueError, match="max-mib"):
        check_size(CONFIG, (CONFIG.file_bytes - 1) / MIB)
