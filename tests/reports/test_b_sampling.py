"""B. What the caller asked of sampling, on the real kernels of a tiny model, with drafts of a known quality."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.reports.alphabet import spell
from tests.reports.conftest import MakeTiny
from tests.reports.stage import Answer, Stage, logprob_tokens

LENGTH = 40
RIGHT = (1.0, 0.6)


async def twins(stage: Stage, right: float, prompt: str = "hello there", **ask: Any) -> tuple[Answer, Answer]:
    """The plain reply and the drafted one, which has to have tried something."""
    asked = {"max_tokens": LENGTH, "ignore_eos": True, "seed": 1} | ask
    plain = await stage.ask(prompt, draft=False, **asked)
    drafted = await stage.ask(prompt, **asked)
    assert (plain.block["drafted"], drafted.block["accepted"] > 0) == (0, True)
    assert (drafted.block["drafted"] > drafted.block["accepted"]) == (right < 1)
    return plain, drafted


def entries(answer: Answer) -> list[tuple[str, float, dict[str, float]]]:
    """(token, its log probability, the alternatives), one for each token of either route's reply."""
    logs = answer.logprobs
    if "content" in logs:
        # By their bytes: those of single invalid ones are all shown alike.
        tops = [{str(top["bytes"]): top["logprob"] for top in entry["top_logprobs"]} for entry in logs["content"]]
        return [(str(entry["bytes"]), entry["logprob"], top) for entry, top in zip(logs["content"], tops, strict=True)]
    return list(zip(logs["tokens"], logs["token_logprobs"], logs["top_logprobs"], strict=True))


@pytest.mark.parametrize("right", RIGHT)
@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
@pytest.mark.parametrize("stream", [False, True])
async def test_b1_b2_log_probabilities_of_drafted_tokens(
    make_tiny: MakeTiny, right: float, chat: bool, stream: bool
) -> None:
    """B1. On the drafted path every token had log probability 0, or only a round's first one was right.

    B2. Or they were null there. Here: one entry a token, equal bit by bit to the plain run.
    """
    stage = make_tiny(right=right)
    asked: dict[str, Any] = {"logprobs": True, "top_logprobs": 5} if chat else {"logprobs": 5}
    plain, drafted = await twins(stage, right, chat=chat, stream=stream, **asked)
    assert drafted.same == plain.same
    told = entries(drafted)
    assert len(told) == drafted.tokens == LENGTH
    for token, logprob, tops in told:
        assert tops[token] == logprob == max(tops.values())
        assert len(tops) == 5
        assert sum(map(math.exp, tops.values())) <= 1 + 1e-5
    assert len({logprob for _, logprob, _ in told}) > LENGTH / 2
    assert all(logprob < 0 for _, logprob, _ in told)


@pytest.mark.parametrize("stream", [False, True])
async def test_b2_log_probabilities_without_alternatives(make_tiny: MakeTiny, stream: bool) -> None:
    """B2. Present also where no alternatives are asked for, and for tokens sampled at a high temperature."""
    stage = make_tiny(right=0.6)
    plain, drafted = await twins(stage, 0.6, stream=stream, logprobs=0, temperature=1.5, seed=5)
    assert drafted.same == plain.same
    assert len(logprob_tokens(drafted)) == LENGTH
    assert all(logprob < 0 for logprob in drafted.logprobs["token_logprobs"])


@pytest.mark.parametrize("right", RIGHT)
async def test_b4_b14_a_seed_is_honoured(make_tiny: MakeTiny, right: float) -> None:
    """B4. A request's seed had no effect. B14. Or it was checked and then forgotten."""
    stage = make_tiny(right=right)
    plain, drafted = await twins(stage, right, seed=42, temperature=2)
    again = [
        await stage.ask("hello there", max_tokens=LENGTH, ignore_eos=True, seed=42, temperature=2) for _ in range(4)
    ]
    assert {answer.block["token_sha256"] for answer in (plain, drafted, *again)} == {plain.block["token_sha256"]}
    assert drafted.block["seed"] == 42
    _, other = await twins(stage, right, seed=43, temperature=2)
    assert other.text != drafted.text
    _, far = await twins(stage, right, seed=42 + 2**32, temperature=2)
    assert far.text != drafted.text


async def test_b4_without_a_seed_replies_differ_and_can_be_had_again(make_tiny: MakeTiny) -> None:
    """B4. The seed that was drawn is told, and asking with it gives the same reply."""
    stage = make_tiny()
    asked: dict[str, Any] = {"max_tokens": LENGTH, "ignore_eos": True, "temperature": 2}
    first, second = [await stage.ask("hello there", **asked) for _ in range(2)]
    assert first.text != second.text
    assert (await stage.ask("hello there", seed=first.block["seed"], **asked)).same == first.same


async def test_b4_choices_have_seeds_of_their_own(make_tiny: MakeTiny) -> None:
    """B4. Choice i of a request with seed s is the reply to seed s + i."""
    stage = make_tiny()
    asked = {"prompt": "hello", "n": 3, "seed": 7, "temperature": 2, "max_tokens": 12, "ignore_eos": True}
    reply = await stage.client.post("/v1/completions", json=asked)
    for at, choice in enumerate(reply.json()["choices"]):
        alone = await stage.ask("hello", seed=7 + at, temperature=2, max_tokens=12, ignore_eos=True)
        assert choice["text"] == alone.text
        assert choice["tfjax"]["token_sha256"] == alone.block["token_sha256"]


@pytest.mark.parametrize("right", RIGHT)
async def test_b5_seeds_side_by_side(make_tiny: MakeTiny, right: float) -> None:
    """B5. Parallel requests with seeds of their own spoilt each other's output.

    Eight lanes, eight seeds, greedy and sampled ones mixed, with all filters.
    """
    stage = make_tiny(right=right)
    asks: list[dict[str, Any]] = [
        {
            "prompt": "hello"[: 1 + at % 5] + " there" * (at % 3),
            "seed": at,
            "temperature": at % 2 * 1.2,
            "top_k": (0, 12)[at // 2 % 2],
            "top_p": (1.0, 0.9)[at // 4],
            "min_p": (0.0, 0.02)[at % 2],
            "logprobs": 2,
            "max_tokens": LENGTH - at,
            "ignore_eos": True,
        }
        for at in range(8)
    ]
    solo = [await stage.ask(**ask, draft=False) for ask in asks]
    assert len({answer.block["token_sha256"] for answer in solo}) == 8
    for _ in range(2):
        answers = await stage.ask_all(asks)
        assert [answer.same for answer in answers] == [answer.same for answer in solo]
        assert all(answer.block["accepted"] for answer in answers)


PENALTIES: dict[str, dict[str, Any]] = {
    "b7-frequency": {"frequency_penalty": 1.0},
    "b7-presence": {"presence_penalty": 1.5},
    "b8-repetition": {"repetition_penalty": 1.2},
    "b8-all": {"repetition_penalty": 1.1, "frequency_penalty": 0.5, "presence_penalty": 0.3},
    "b8-sampled": {"repetition_penalty": 1.3, "temperature": 0.9, "seed": 4, "top_k": 20},
}


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES.keys())
@pytest.mark.parametrize("right", RIGHT)
async def test_b7_b8_penalties_count_the_tokens_of_each_row(
    make_tiny: MakeTiny, right: float, penalty: dict[str, Any]
) -> None:
    """B7. Penalties counted one token a round: the better the drafter, the weaker they were.

    B8. Or they were taken and ignored on the drafted path. A loop shows both: unpenalised this model repeats itself,
    and drafts that were right without the penalty are not with it.
    """
    stage = make_tiny(right=right)
    unpenalised, _ = await twins(stage, right, "hello there")
    plain, drafted = await twins(stage, right, "hello there", **penalty)
    assert drafted.same == plain.same
    assert drafted.text != unpenalised.text
    both = [
        {"prompt": "hello there", "seed": 1, "max_tokens": LENGTH, "ignore_eos": True, **rules}
        for rules in ({}, penalty)
    ]
    beside = await stage.ask_all(both)
    assert [answer.text for answer in beside] == [unpenalised.text, plain.text]


@pytest.mark.parametrize("right", RIGHT)
@pytest.mark.parametrize("least", [0, 1, 9, 10, 16])
async def test_b7_min_tokens_counts_tokens(make_tiny: MakeTiny, right: float, least: int) -> None:
    """B7. min_tokens counted rounds, so that the end was banned as many times too long as drafts landed.

    The end token outweighs all others: it comes the moment it is allowed, as token `least` + 1.
    """
    stage = make_tiny(right=right)
    end = spell("e")[0]
    asked: dict[str, Any] = {
        "stop_token_ids": [end],
        "logit_bias": {str(end): 100},
        "min_tokens": least,
        "max_tokens": LENGTH,
    }
    plain = await stage.ask("hello there", draft=False, seed=1, **asked)
    drafted = await stage.ask("hello there", seed=1, **asked)
    assert drafted.same == plain.same
    assert (drafted.tokens, drafted.reason) == (least + 1, "stop")
    assert drafted.block["accepted"] > 0 or least <= 1
