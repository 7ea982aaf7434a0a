"""D. Streaming: characters over several tokens, and one path for streams and whole replies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reports.alphabet import FAMILY, PIECES, spell
from tests.reports.conftest import MakeStage
from tests.stubs import listed

REPLACED = "\ufffd"
TEXTS = {
    "emoji and CJK": f"a漢{FAMILY}é漢b".encode(),
    "an invalid byte": b"a\xffb" + "漢".encode() + b"\xff\xffc",
    "a torn character": "漢".encode()[:2] + "é".encode() + FAMILY.encode()[:3] + b"xyz",
}


def cut(text: bytes, most: int) -> str:
    return text[:most].decode("utf-8", "replace")


@pytest.mark.parametrize("block", range(1, 9))
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_d7_characters_over_several_tokens(make_stage: MakeStage, text: bytes, block: int) -> None:
    """D7. A character split over tokens was sent as U+FFFD.

    Every length that cuts the reply, whole and streamed: the deltas joined are the text decoded at once, a character is
    sent when it is whole, and bytes that can never be one are shown once.
    """
    stage = make_stage(listed(spell(text)), "perfect", block=block)
    lengths = range(1, len(text) + 1)
    whole = await stage.ask_all([{"prompt": "hi", "max_tokens": most} for most in lengths])
    streamed = await stage.ask_all([{"prompt": "hi", "max_tokens": most, "stream": True} for most in lengths])
    for most, one, other in zip(lengths, whole, streamed, strict=True):
        assert one.text == other.text == "".join(other.deltas) == cut(text, most)
        assert one.block["token_sha256"] == other.block["token_sha256"]
        assert all(other.deltas[:-1])
        # What was sent is never taken back: a replacement stands for bytes that no later byte can complete.
        assert all(cut(text, most).startswith("".join(other.deltas[:at])) for at in range(len(other.deltas)))
        if text == TEXTS["emoji and CJK"]:
            *before_the_end, _, _ = ("", *other.deltas)
            assert REPLACED not in "".join(before_the_end)
            assert other.text.count(REPLACED) == (cut(text, most).encode() != text[:most])


@pytest.mark.parametrize("block", [1, 4, 8])
async def test_d7_log_probabilities_travel_with_split_characters(make_stage: MakeStage, block: int) -> None:
    """D7. Also their entries: one a token, streamed as in the whole reply, placed where the character begins."""
    text = f"a漢{FAMILY}b".encode()
    stage = make_stage(listed(spell(text)), "mixed", block=block)
    whole = await stage.ask("hi", max_tokens=len(text), logprobs=1)
    streamed = await stage.ask("hi", max_tokens=len(text), logprobs=1, stream=True)
    assert whole.logprobs == streamed.logprobs
    starts = [len(text[:at].decode("utf-8", "ignore")) for at in range(len(text))]
    assert whole.logprobs["text_offset"] == starts


@pytest.mark.parametrize("block", [1, 3, 16])
async def test_d8_stop_strings_in_streams(make_stage: MakeStage, block: int) -> None:
    """D8. The stream's handler had no look at stop strings. Here streams and whole replies share one path."""
    tokens = [*spell("aa "), PIECES.index(b"ST"), PIECES.index(b"OP"), *spell("b" * 12)]
    stage = make_stage(listed(tokens), "perfect", block=block)
    for stop in (["STOP"], "OP", ["T"], ["STOPb"], ["a "], ["bbb", "nowhere"]):
        asked: dict[str, Any] = {"stop": stop, "max_tokens": 17, "logprobs": 1}
        whole, streamed = await stage.ask("hi", **asked), await stage.ask("hi", stream=True, **asked)
        assert whole.same == streamed.same
        assert whole.reason == "stop"
        first = stop if isinstance(stop, str) else stop[0]
        assert whole.text == "aa STOPbbbbbbbbbbbb".partition(first)[0]
