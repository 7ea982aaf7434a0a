"""A. Ends of a reply inside an accepted block, as a client of the whole server meets them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.reports.alphabet import END_OF_TURN, PIECES, TEMPLATE, Alphabet, spell
from tests.reports.conftest import MakeStage
from tests.reports.probed import ProbedModel
from tests.reports.stage import MODES, Stage, babble, logprob_tokens
from tests.stubs import EOS, Script, listed

ST, OP = PIECES.index(b"ST"), PIECES.index(b"OP")
LEADS = {lead: "a" * lead + ("q" * (lead % 2)) for lead in range(20)}
STOP_BOOK: dict[str, Script] = {
    f"{'x' * (lead + 1)}": listed([*spell(text), ST, OP, *spell("b" * 20)]) for lead, text in LEADS.items()
}
STOP_ASKS: list[dict[str, Any]] = [{"prompt": prompt, "max_tokens": 40, "stop": ["STOP"]} for prompt in STOP_BOOK]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("block", [1, 2, 5, 16])
async def test_a1_a_stop_string_anywhere_in_a_block(make_stage: MakeStage, block: int, stream: bool) -> None:
    """A1. A stop string near the head of a long accepted block was overlooked, as only its tail was searched.

    With these leads the string also starts in one round and is complete in the next.
    """
    stage = make_stage(STOP_BOOK, "perfect", block=block)
    answers = await stage.ask_all(STOP_ASKS, stream=stream)
    for text, answer in zip(LEADS.values(), answers, strict=True):
        assert (answer.text, answer.reason) == (text, "stop")
        assert answer.tokens == len(text) + 2
        assert answer.block["accepted"] >= (answer.tokens - 1) // (block + 1) * block


@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a2_logprobs_and_usage_end_with_the_stop_string(make_stage: MakeStage, stream: bool, chat: bool) -> None:
    """A2. The text was cut, while ids, log probabilities and usage still told of the tokens behind the cut."""
    script = listed([*spell("aa "), ST, OP, *spell("b" * 20)])
    stage = make_stage(script, "perfect", block=16, tokenizer=Alphabet(TEMPLATE))
    asked = {"logprobs": True, "top_logprobs": 2} if chat else {"logprobs": 2}
    answer = await stage.ask("hi", stream=stream, chat=chat, stop=["STOP"], max_tokens=30, **asked)
    assert answer.text == "aa "
    assert logprob_tokens(answer) == ["a", "a", " ", "ST", "OP"]
    assert answer.usage["completion_tokens"] == 5
    assert answer.usage["total_tokens"] == answer.usage["prompt_tokens"] + 5
    assert await stage.metric("generation_tokens_total") == 5


@pytest.mark.parametrize("eos", [EOS, END_OF_TURN])
async def test_a5_nothing_follows_an_end_token(make_stage: MakeStage, eos: int) -> None:
    """A5. An end token was accepted within a block, and the block's tail was sent all the same.

    For each place of the block and each id of the model's list.
    """
    letters = "abcdefghijklmnopq"
    book = {"x" * (at + 1): listed([*spell(letters[:at]), eos, *spell("zzzzzz")]) for at in range(17)}
    stage = make_stage(book, "perfect", block=16)
    for stream in (False, True):
        answers = await stage.ask_all([{"prompt": prompt} for prompt in book], max_tokens=40, stream=stream, logprobs=1)
        for at, answer in enumerate(answers):
            assert (answer.text, answer.reason, answer.tokens) == (letters[:at], "stop", at + 1)
            assert logprob_tokens(answer)[at:] == [Alphabet().token_text(eos)]


@pytest.mark.parametrize("mode", MODES)
async def test_a6_nothing_past_the_end_stays_in_the_cache(make_stage: MakeStage, mode: str) -> None:
    """A6. Rows accepted beyond the end token stayed in the cache, so that the next turn could not build on it."""
    model = ProbedModel()
    stage = make_stage(listed([*spell("abcdef"), EOS, *spell("ghijkl")]), mode, block=8, backend=model)
    for draft in (True, False):
        assert (await stage.ask("hi", draft=draft, max_tokens=20)).tokens == 7
    drafted, plain = model.at_release
    assert model.wrong == []
    assert drafted == plain == tuple(spell("hiabcdef"))


async def test_a6_a_second_turn_extends_the_first(make_stage: MakeStage) -> None:
    """A6. The turn that followed such an end was answered from a wrong state."""
    script = babble(5)
    stage = make_stage(lambda context, prompt: EOS if len(context) % 9 == 8 else script(context, prompt), "perfect")
    prompt = "hi"
    for _ in range(3):
        drafted = await stage.ask(prompt, max_tokens=30)
        assert drafted.same == (await stage.ask(prompt, max_tokens=30, draft=False)).same
        assert (drafted.reason, drafted.block["accepted"] > 0) == ("stop", True)
        prompt += drafted.text + "u"


@pytest.mark.parametrize("mode", ["perfect", "mixed"])
async def test_a8_max_tokens_is_met_exactly(make_stage: MakeStage, mode: str) -> None:
    """A8. A block that crosses max_tokens was charged whole and sent in part; rates counted what nobody got."""
    stage = make_stage(lambda context, prompt: EOS if len(context) % 3 == 0 else 1, mode, block=7)
    asks = [{"prompt": "abc", "max_tokens": most, "stream": most % 2 == 0} for most in range(1, 21)]
    answers = await stage.ask_all(asks, ignore_eos=True, logprobs=1)
    for most, answer in enumerate(answers, start=1):
        assert (answer.tokens, answer.reason) == (most, "length")
        assert len(logprob_tokens(answer)) == most
        assert answer.usage["total_tokens"] == 3 + most
    assert await stage.metric("generation_tokens_total") == sum(range(1, 21))
    accepted = sum(answer.block["accepted"] for answer in answers)
    assert await stage.metric("spec_decode_num_accepted_tokens_total") == accepted
    assert accepted <= sum(answer.tokens - 1 for answer in answers)


async def test_a11_an_end_token_that_the_target_draws_at_a_draft_row_ends_the_reply(make_stage: MakeStage) -> None:
    """A11. To cure early stops, end tokens were banned at draft rows; that changes what the model says.

    The drafter offers the end token and everything before it, so it is drawn at a draft row and accepted there.
    """
    stage = make_stage(listed([*spell("abc"), EOS, *spell("def")]), "perfect", block=8)
    answer = await stage.ask("hi", max_tokens=20)
    assert (answer.text, answer.reason, answer.tokens) == ("abc", "stop", 4)
    assert (answer.block["rounds"], answer.block["accepted"]) == (1, 3)


async def deltas(stage: Stage, **ask: Any) -> tuple[str, ...]:
    return (await stage.ask("hi", stream=True, **ask)).deltas


@pytest.mark.parametrize("mode", [*MODES, None])
async def test_a13_only_a_tail_that_may_become_a_stop_string_is_held_back(
    make_stage: MakeStage, mode: str | None
) -> None:
    """A13. A stream held back as many characters as the longest stop string has, and short replies came empty."""
    said = "ab a very lon"
    stage = make_stage(listed([*spell(said), EOS]), mode, block=4)
    stops = ["a very long stop string", "zz"]
    parts = await deltas(stage, stop=stops, max_tokens=40)
    assert "".join(parts) == said
    assert all(parts[:-1])
    sent = list(itertools.accumulate(parts))
    # Token by token: the first `a` may be the start, `ab` cannot be.
    if mode == "empty":
        assert sent == ["ab", "ab ", "ab a very lon", "ab a very lon"]
    assert await deltas(stage, stop=["xyz"], max_tokens=40) == await deltas(stage, max_tokens=40)
