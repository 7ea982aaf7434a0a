from __future__ import annotations

from typing import Any

import pytest

from tfjax.bench.reply import DraftCounts, Reply, all_same, draft_counts, same_tokens


def reply(tokens: int = 10, **block: Any) -> Reply:
    return Reply(0.0, 1.0, (), "", tokens, block=block)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"token_sha256": "a"}, {"token_sha256": "a"}, True),
        ({"token_sha256": "a"}, {"token_sha256": "b"}, False),
        ({"token_sha256": "a"}, {}, None),
        ({}, {"token_sha256": "a"}, None),
        ({}, {}, None),
        ({"token_sha256": ""}, {"token_sha256": ""}, None),
        ({"token_sha256": 5}, {"token_sha256": 5}, None),
    ],
)
def test_missing_hashes_are_never_equal(one: dict[str, Any], other: dict[str, Any], same: bool | None) -> None:
    assert same_tokens(reply(**one), reply(**other)) is same


@pytest.mark.parametrize(
    ("found", "answer"),
    [([True, True], True), ([True, None], None), ([None, False, True], False), ([], None)],
)
def test_all_same(found: list[bool | None], answer: bool | None) -> None:
    assert all_same(found) is answer


def test_drafts_add_up_by_depth() -> None:
    counts = draft_counts(
        [
            reply(
                drafted=5, accepted=3, drafted_rounds=2, drafted_per_position=[2, 2, 1], accepted_per_position=[2, 1]
            ),
            reply(drafted=1, accepted=0, drafted_rounds=1, drafted_per_position=[1], accepted_per_position=[]),
        ]
    )
    assert counts == DraftCounts(6, 3, 6, (3, 2, 1), (2, 1))
    assert counts.rejected_by_depth == (1, 1, 1)
    assert counts.as_dict()["counting_tokens"] == 6


def test_counting_tokens_are_no_more_than_the_reply() -> None:
    assert draft_counts([reply(tokens=4, drafted=9, accepted=5, drafted_rounds=3)]).counting == 4


def test_what_a_server_does_not_tell_is_unknown() -> None:
    counts = draft_counts([reply(drafted=5, accepted=3, drafted_rounds=2), reply(drafted=1, accepted=0)])
    assert (counts.counting, counts.proves) == (None, None)
    assert (counts.drafted_by_depth, counts.rejected_by_depth) == ((), ())


@pytest.mark.parametrize(("drafted", "kept", "proves"), [(0, 0, 0), (4, 4, 0), (4, 3, 7)])
def test_without_a_rejected_draft_nothing_counts(drafted: int, kept: int, proves: int) -> None:
    assert DraftCounts(drafted, kept, 7, (), ()).proves == proves
