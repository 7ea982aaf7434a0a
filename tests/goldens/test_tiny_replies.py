"""The tiny checkpoints say what tiny_replies.json says, with drafts as without."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.goldens.tiny_replies import PROMPTS, SAMPLINGS, TOKENS, VARIANTS, replies, token_sha256
from tests.goldens.update import REPLIES, changed_replies

AT_ONCE = ("tied", "biases")
REMEDY = "Token ids only change with the arithmetic or the draws. If that is meant: `make goldens`, and say why."


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(REPLIES.read_text(encoding="utf-8"))
    return found


def test_every_reply_is_there_and_hashes_what_it_says(golden: dict[str, Any]) -> None:
    assert list(golden) == list(VARIANTS)
    for by_name in golden.values():
        assert set(by_name) == {f"{prompt}, {way}" for prompt in PROMPTS for way in SAMPLINGS}
        for reply in by_name.values():
            assert len(reply["tokens"]) == TOKENS
            assert reply["sha256"] == token_sha256(reply["tokens"])


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=[] if name in AT_ONCE else [pytest.mark.slow]) for name in VARIANTS]
)
def test_replies(variant: str, golden: dict[str, Any]) -> None:
    changed = changed_replies({variant: golden[variant]}, {variant: replies(variant, drafts=True)})
    assert not changed, "\n".join(["", *changed, REMEDY])
