from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tfjax.train.shards import (
    Recipe,
    UnusableReplies,
    WrittenReply,
    open_directory,
    read_recipe,
    read_replies,
    shards,
    write_shard,
    written,
)

RECIPE = Recipe("model", "abc", "auto", "prompts", "def", {"python": "3.12"}, 1, 1024, 448)
REPLIES = [
    WrittenReply(3, "chat", 0.0, (5, 6, 7), (8, 9)),
    WrittenReply(0, "edit", 0.83, (1,), (65_535, 0, 2)),
    WrittenReply(7, "chat", 1.0, (4, 4), ()),
]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_shard(tmp_path, REPLIES[:2], 1 << 16)
    write_shard(tmp_path, REPLIES[2:], 1 << 16)
    assert list(read_replies(tmp_path)) == REPLIES
    assert written(tmp_path) == ({0, 3, 7}, 5)


@pytest.mark.parametrize(("vocab_size", "kind"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.int32)])
def test_ids_take_two_bytes_where_they_fit(tmp_path: Path, vocab_size: int, kind: type) -> None:
    reply = WrittenReply(0, "chat", 0.0, (1,), (vocab_size - 1,))
    assert load_file(write_shard(tmp_path, [reply], vocab_size))["tokens"].dtype == kind
    assert list(read_replies(tmp_path)) == [reply]


def test_a_lost_shard_gives_its_number_to_none(tmp_path: Path) -> None:
    for reply in REPLIES:
        write_shard(tmp_path, [reply], 1 << 16)
    shards(tmp_path)[1].unlink()
    added = write_shard(tmp_path, [REPLIES[1]], 1 << 16)
    assert added.name == "shard-00003.safetensors"
    assert written(tmp_path)[0] == {0, 3, 7}


def test_a_half_written_shard_does_not_count(tmp_path: Path) -> None:
    write_shard(tmp_path, REPLIES, 1 << 16)
    (tmp_path / "shard-00001.safetensorsab12cd").write_bytes(b"half")
    assert list(read_replies(tmp_path)) == REPLIES


@pytest.mark.parametrize("damage", ["short", "empty", "no metadata", "no kinds", "no tensors"])
def test_a_damaged_shard_is_named(tmp_path: Path, damage: str) -> None:
    path = write_shard(tmp_path, REPLIES, 1 << 16)
    if damage.startswith("no"):
        metadata = {"no metadata": None, "no kinds": {"x": "[]"}, "no tensors": {"kinds": "[]"}}[damage]
        save_file({} if damage == "no tensors" else load_file(path), path, metadata)
    else:
        path.write_bytes(path.read_bytes()[: 40 if damage == "short" else 0])
    with pytest.raises(UnusableReplies, match=r"shard-00000.*remove it"):
        list(read_replies(tmp_path))
    with pytest.raises(UnusableReplies, match=r"shard-00000"):
        written(tmp_path)


def test_a_directory_takes_replies_of_one_recipe(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "replies"
    open_directory(directory, RECIPE)
    open_directory(directory, RECIPE)
    assert read_recipe(directory)["versions"] == {"python": "3.12"}
    with pytest.raises(UnusableReplies, match=r"seed 1 there, 2 now\); give another --output"):
        open_directory(directory, replace(RECIPE, seed=2))
    with pytest.raises(UnusableReplies, match=r"vocabulary 'abc' there, 'x' now"):
        open_directory(directory, replace(RECIPE, vocabulary="x"))


def test_a_recipe_that_says_nothing_of_sampling_was_drawn_as_usual(tmp_path: Path) -> None:
    open_directory(tmp_path, RECIPE)
    said = read_recipe(tmp_path)
    del said["sampling"]
    (tmp_path / "recipe.json").write_text(json.dumps(said))
    open_directory(tmp_path, RECIPE)
    with pytest.raises(UnusableReplies, match=r"sampling '' there, 'dense' now"):
        open_directory(tmp_path, replace(RECIPE, sampling="dense"))


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_no_recipe_no_replies(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "recipe.json").write_text(content)
    with pytest.raises(UnusableReplies, match=r"recipe"):
        read_recipe(tmp_path)


def test_a_shard_without_temperatures_says_what_it_lacks(tmp_path: Path) -> None:
    path = write_shard(tmp_path, REPLIES, 1 << 16)
    with safe_open(path, "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys() if name != "temperature"}  # noqa: SIM118
        metadata = file.metadata()
    save_file(tensors, path, metadata)
    with pytest.raises(
        UnusableReplies, match=r"shard-00000.* does not tell at which temperatures its replies were drawn"
    ):
        list(read_replies(tmp_path))
