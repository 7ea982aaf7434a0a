"""Replies as rows: nothing is lost or counted twice, what is held out stays out, the order follows the seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.train import tiny_run
from tfjax.train.small_data import (
    CONTEXT,
    PAD,
    PROMPT,
    REPLY,
    Document,
    Packed,
    check_recipe,
    coverage,
    draft_vocabulary,
    pack,
    read_documents,
    rows_of_steps,
)


def document(token: list[int], reply_start: int) -> Document:
    return Document(np.array(token, np.int32), reply_start, greedy=True, held_out=False)


def numbered(length: int, reply_start: int, first: int = 0) -> Document:
    return document(list(range(first, first + length)), reply_start)


def counted(packed: Packed) -> list[int]:
    """Tokens that some row learns, by value."""
    return sorted(packed.token[(packed.kind == PROMPT) | (packed.kind == REPLY)].tolist())


def test_documents_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = tiny_run.replies(101)
    found = read_documents(tiny_run.write_replies(tmp_path / "replies", tiny_run.write_target(tmp_path / "t"), written))
    assert [tuple(one.token) for one in found] == [reply.prompt + reply.reply for reply in written]
    assert [tuple(one.reply) for one in found] == [reply.reply for reply in written]
    assert [one.greedy for one in found] == [reply.temperature == 0 for reply in written]
    assert [i for i, one in enumerate(found) if one.held_out] == [0, 50, 100]


def test_no_replies_yet_and_no_directory(tmp_path: Path) -> None:
    empty = tiny_run.write_replies(tmp_path / "replies", tiny_run.write_target(tmp_path / "t"), [])
    with pytest.raises(ValueError, match="no replies yet"):
        read_documents(empty)
    with pytest.raises(ValueError, match=r"holds no replies.*tfjax train replies"):
        read_documents(tmp_path / "nothing")


def test_replies_of_another_vocabulary_or_model_are_refused() -> None:
    recipe = {"vocabulary": "abc", "model": "one"}
    check_recipe(Path("r"), recipe, model="one", vocabulary="abc")
    with pytest.raises(
        ValueError, match=r"r holds replies of 'one' in the vocabulary 'abc', and 'one' has 'xyz'.*--model"
    ):
        check_recipe(Path("r"), recipe, model="one", vocabulary="xyz")
    with pytest.raises(ValueError, match=r"replies of 'one', and the drafter is to imitate 'two'.*--model"):
        check_recipe(Path("r"), recipe, model="two", vocabulary="abc")


def test_the_draft_vocabulary_is_what_replies_use_most() -> None:
    documents = [document([9, 9, 9, 9, 5, 5, 3], 4), document([1, 5, 2, 3], 1)]
    assert draft_vocabulary(documents, 12, 2).tolist() == [3, 5]
    assert draft_vocabulary(documents, 12, 5).tolist() == [0, 1, 2, 3, 5]
    assert draft_vocabulary(documents, 12, 12).tolist() == list(range(12))
    assert coverage(documents, np.array([3, 5], np.int32)) == pytest.approx(5 / 6)


def test_a_token_beyond_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="token 12, and the vocabulary ends at 11"):
        draft_vocabulary([document([12, 1], 1)], 12, 2)


def test_every_token_is_in_exactly_one_row_and_rows_are_full() -> None:
    sizes = [3, 8, 8, 5, 2, 6, 1, 7]
    firsts = np.cumsum([0, *sizes])
    packed = pack([numbered(size, 1, int(first)) for size, first in zip(sizes, firsts[:-1], strict=True)], 8)
    assert counted(packed) == list(range(sum(sizes)))
    assert len(packed.token) == sum(sizes) // 8
    assert (packed.kind != PAD).all()


def test_segments_positions_and_kinds_begin_anew_with_each_document() -> None:
    packed = pack([numbered(3, 2, 10), numbered(5, 1, 20)], 10)
    assert packed.token[0].tolist() == [20, 21, 22, 23, 24, 10, 11, 12, 0, 0]
    assert packed.segment[0].tolist() == [1, 1, 1, 1, 1, 2, 2, 2, 0, 0]
    assert packed.position[0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 0]
    assert packed.kind[0].tolist() == [PROMPT, REPLY, REPLY, REPLY, REPLY, PROMPT, PROMPT, REPLY, PAD, PAD]


def test_a_long_document_is_cut_and_each_token_is_learned_once() -> None:
    packed = pack([numbered(21, 3)], 8)
    assert counted(packed) == list(range(21))
    by_first = sorted(range(len(packed.token)), key=lambda row: packed.token[row, 0])
    assert [packed.token[row, 0] for row in by_first] == [0, 6, 12, 18]
    second = by_first[1]
    assert packed.kind[second, :2].tolist() == [CONTEXT, CONTEXT]
    assert packed.position[second].tolist() == list(range(8))
    assert packed.kind[by_first[0], :4].tolist() == [PROMPT, PROMPT, PROMPT, REPLY]


@pytest.mark.parametrize("length", [8, 9, 64])
def test_a_document_that_just_fits_is_not_cut(length: int) -> None:
    packed = pack([numbered(length, 2)], length)
    assert packed.token.tolist() == [list(range(length))]
    assert CONTEXT not in packed.kind


def test_every_row_is_seen_once_in_an_epoch_whatever_the_batch() -> None:
    rows = rows_of_steps(seed=3, rows=10, batch=4, first=0, count=5).reshape(-1)
    assert sorted(rows[:10].tolist()) == sorted(rows[10:].tolist()) == list(range(10))
    assert rows[:10].tolist() != rows[10:].tolist()


def test_steps_take_the_same_rows_however_they_are_grouped() -> None:
    whole = rows_of_steps(seed=3, rows=7, batch=4, first=0, count=12)
    parts = [rows_of_steps(seed=3, rows=7, batch=4, first=first, count=3) for first in (0, 3, 6, 9)]
    assert np.array_equal(whole, np.concatenate(parts))
    assert not np.array_equal(whole, rows_of_steps(seed=4, rows=7, batch=4, first=0, count=12))


def test_a_batch_may_be_larger_than_an_epoch() -> None:
    assert np.bincount(rows_of_steps(seed=0, rows=3, batch=9, first=1, count=2).reshape(-1)).tolist() == [6, 6, 6]
