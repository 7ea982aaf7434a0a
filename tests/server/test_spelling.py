"""How tokens are shown in logprobs."""

from __future__ import annotations

import math

import msgspec

from tests.server.byte_tokenizer import EOS, ByteTokenizer
from tfjax.engine.api import TokenLogprob
from tfjax.server.spelling import Speller

SPELLER = Speller(ByteTokenizer())


def test_chat_shape_has_text_and_bytes() -> None:
    shown = SPELLER.chat(TokenLogprob(0xE6, -1.0, ((0xE6, -1.0), (EOS, -2.0))))
    assert (shown.token, shown.bytes) == ("\ufffd", [0xE6])
    assert (shown.top_logprobs[1].token, shown.top_logprobs[1].bytes) == ("</s>", list(b"</s>"))


def test_the_older_shape_keeps_tokens_apart_by_their_bytes() -> None:
    entries = (TokenLogprob(0xE6, -1.0, ((0xE6, -1.0), (0xE7, -2.0), (97, -3.0))),)
    shown = SPELLER.text(entries, (4,), tops=True)
    assert shown.tokens == ["bytes:\\xe6"]
    assert shown.top_logprobs == [{"bytes:\\xe6": -1.0, "bytes:\\xe7": -2.0, "a": -3.0}]
    assert shown.text_offset == [4]
    assert SPELLER.text(entries, (4,), tops=False).top_logprobs is None


def test_what_cannot_be_drawn_is_a_number_in_json() -> None:
    shown = SPELLER.chat(TokenLogprob(97, -math.inf, ((98, -math.inf),)))
    assert msgspec.json.decode(msgspec.json.encode(shown))["logprob"] == -9999.0
    assert shown.top_logprobs[0].logprob == -9999.0
