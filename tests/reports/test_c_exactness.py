"""C. Exactness: near ties, penalties and restarts, on the real weights and on a tiny model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.real_model import Opened, open_matrix
from tests.reports.conftest import MakeStage, MakeTiny
from tests.reports.remembering import RememberingEngine
from tests.reports.stage import Stage
from tests.reports.tiny import tiny_backend, tiny_engine
from tfjax.engine.engine import Served

WORDS = "hello there sky rain north moss"
TOKENS = 24
PROMPTS = [
    "The capital of France is", "1, 2, 3, 5, 8,", "def mean(values):", "Once upon a time", "Dear Sir or Madam,",
    "SELECT name FROM", "import numpy as", "Water boils at", "To be, or not to be,", "Monday, Tuesday,",
    "A list of fruits:\n- apple\n-", "E = mc", "The quick brown fox", "Translate to French: cheese", "<html><body>",
    "for i in range(10):", "My favourite colour is", "In 1969, humans", "Roses are red,", "The opposite of hot is",
    "a b a b a b a", "{\"name\": \"", "Breaking news:", "Q: What is 7 times 8?\nA:", "Chapter 1\n\n", "git commit -m",
    "She opened the door and", "The three primary colours are", "Photosynthesis is", "日本の首都は",
]  # fmt: skip
PENALTY = 1.05


async def test_c5_a_restart_changes_no_hash(make_tiny: MakeTiny, make_stage: MakeStage) -> None:
    """C5. After a restart greedy output was another, as timing at the start had chosen another kernel.

    A second backend is compiled anew and told other prices of its widths: fewer drafts are tried, and every hash stays.
    """
    asks: list[dict[str, Any]] = [
        {"prompt": WORDS[at : at + 9], "seed": at, "temperature": at % 2, "max_tokens": 40, "ignore_eos": True}
        for at in range(8)
    ]
    first = make_tiny(right=0.6)
    plain = [await first.ask(**ask, draft=False) for ask in asks]
    drafted = await first.ask_all(asks)
    backend = tiny_backend()
    backend.window_ms = {4: 1.0, 16: 40.0}
    second = make_stage(tiny_engine(backend, right=0.6))
    again = [await second.ask(**ask, draft=False) for ask in asks]
    priced = await second.ask_all(asks)
    for answers in (drafted, again, priced):
        assert [answer.same for answer in answers] == [answer.same for answer in plain]
    assert 0 < tried(priced) < tried(drafted)
    assert len({answer.block["token_sha256"] for answer in plain}) == 8


def tried(answers: list[Any]) -> int:
    return sum(answer.block["drafted"] for answer in answers)


@pytest.fixture(scope="module")
def opened() -> Opened:
    return open_matrix()


def real_stage(make_stage: MakeStage, opened: Opened, block: int) -> Stage:
    """At most `block` drafts a round, and as many as offered: nothing is known of what they cost."""
    opened.backend.window_ms = {}
    numbers = replace(opened.settings, draft_tokens=block, first_width=block)
    served = Served("real", opened.tokenizer, opened.tokenizer.eos_ids)
    return make_stage(RememberingEngine(opened.backend, numbers, served, right=0.8))


def greedy(prompt: str, **rules: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "seed": 1, **rules}


@pytest.mark.weights
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rules", [{}, {"repetition_penalty": PENALTY}], ids=["c3", "c4"])
async def test_c3_c4_no_block_size_tips_a_near_tie(
    make_stage: MakeStage, opened: Opened, rules: dict[str, Any]
) -> None:
    """C3. A forward of K rows rounded otherwise than one of a single row, and near ties fell the other way.

    C4. Users saw it as one reply in ten that changed once penalties were on. Thirty prompts; block sizes 1 to 16, each
    with prompts of its own, alone and beside others; every prompt meets two sizes.
    """
    plain_stage = real_stage(make_stage, opened, 1)
    plain = dict(
        zip(PROMPTS, await plain_stage.ask_all([greedy(p, **rules) for p in PROMPTS], draft=False), strict=True)
    )
    assert isinstance(plain_stage.engine, RememberingEngine)
    known = plain_stage.engine.known
    plain_stage.close()
    kept = missed = 0
    for block in range(1, 17):
        stage = real_stage(make_stage, opened, block)
        assert isinstance(stage.engine, RememberingEngine)
        stage.engine.known = known
        prompts = [
            prompt for at, prompt in enumerate(PROMPTS) if at % 16 == block - 1 or (7 * at + 3) % 16 == block - 1
        ]
        answers = [
            await stage.ask(**greedy(prompts[0], **rules)),
            *await stage.ask_all([greedy(p, **rules) for p in prompts]),
        ]
        stage.close()
        for prompt, answer in zip([prompts[0], *prompts], answers, strict=True):
            assert answer.same == plain[prompt].same, (prompt, block)
        kept += sum(answer.block["accepted"] for answer in answers)
        missed += sum(answer.block["drafted"] - answer.block["accepted"] for answer in answers)
    print(f"{kept} drafts kept, {missed} rejected")
    assert kept > 600
    assert missed > 100


@pytest.mark.weights
@pytest.mark.timeout(600)
async def test_c5_a_restart_on_the_real_weights(make_stage: MakeStage, opened: Opened) -> None:
    """C5. As above: the file read, compiled and probed again."""
    asks = [greedy(prompt, temperature=at % 2 * 0.8) for at, prompt in enumerate(PROMPTS[:8])]
    hashes = []
    for start in (opened, open_matrix()):
        stage = real_stage(make_stage, start, 8)
        plain = await stage.ask_all(asks, draft=False)
        drafted = await stage.ask_all(asks)
        stage.close()
        assert [answer.same for answer in drafted] == [answer.same for answer in plain]
        assert tried(drafted) > 0
        hashes.append([answer.block["token_sha256"] for answer in plain])
    assert hashes[0] == hashes[1]
