from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.engine.drafters.dspark_files import dspark_arrays, dspark_directory
from tfjax.checkpoints import CheckpointError, open_checkpoint
from tfjax.engine.drafters.dspark_tensors import Rounded, Unprefixed


def test_a_prefix_is_left_out(tmp_path: Path) -> None:
    arrays = dspark_arrays()
    prefixed = {name: None for name in arrays if name != "fc.weight"}
    prefixed |= {f"model.{name}": array for name, array in arrays.items() if name != "fc.weight"}
    source = Unprefixed(open_checkpoint(dspark_directory(tmp_path, **prefixed)))
    assert source.infos.keys() == arrays.keys()
    assert source.infos["norm.weight"].shape == (40,)
    for name in ("norm.weight", "fc.weight"):
        assert np.array_equal(source.read(name), arrays[name])
    with pytest.raises(CheckpointError, match="nothing"):
        source.read("nothing")


def test_two_tensors_for_one_are_refused(tmp_path: Path) -> None:
    path = dspark_directory(tmp_path, **{"model.norm.weight": np.zeros(40, np.float32)})
    with pytest.raises(CheckpointError, match=r"two tensors for one; tensor norm.weight; found model.norm.weight and"):
        Unprefixed(open_checkpoint(path))


def test_matrices_have_few_values_in_each_group(tmp_path: Path) -> None:
    wide = np.random.default_rng(0).normal(0, 1, (4, 128)).astype(np.float32)
    odd = np.random.default_rng(0).normal(0, 1, (4, 96)).astype(np.float32)
    path = dspark_directory(tmp_path, **{"wide.weight": wide, "odd.weight": odd})
    inner = open_checkpoint(path).tensors
    rounded = Rounded(inner, 8)
    assert rounded.infos.keys() == inner.infos.keys()
    for name, whole, group in (("wide.weight", wide, 64), ("odd.weight", odd, 32)):
        values = rounded.read(name)
        step = np.ptp(whole.reshape(4, -1, group), -1).max() / 255
        assert not np.array_equal(values, whole)
        assert np.abs(values - whole).max() <= step
        coarse = Rounded(inner, 4).read(name)
        assert np.abs(coarse - whole).max() > step


@pytest.mark.parametrize(
    "name", ["norm.weight", "wide_norm.weight", "confidence_head.proj.weight", "layers.0.self_attn.q_proj.weight"]
)
def test_vectors_the_confidence_head_and_odd_widths_stay(name: str, tmp_path: Path) -> None:
    """The tiny drafter's rows of 40 fill no group."""
    random = np.random.default_rng(0).normal(0, 1, (1, 64)).astype(np.float32)
    path = dspark_directory(tmp_path, **{"confidence_head.proj.weight": random, "wide_norm.weight": random[0]})
    inner = open_checkpoint(path).tensors
    assert np.array_equal(Rounded(inner, 8).read(name), inner.read(name))
