from __future__ import annotations

import random
from collections import Counter

import pytest

from tfjax.train import prompts as module
from tfjax.train.harvest import Corpus, Function, Passage
from tfjax.train.held_out import Problem
from tfjax.train.prompts import KINDS, ProblemPrompts, Prompt, Prompts
from tfjax.train.questions import list_request, question

CORPUS = Corpus(
    functions=tuple(
        Function(
            "m",
            f"name_{i}",
            f"Doc {i}.",
            f'def name_{i}(word):\n    """Doc {i}."""',
            f"def name_{i}(word):\n    BODY{i}",
        )
        for i in range(50)
    ),
    documented=(
        Function("m", "told", "Told {so}.", 'def told(word):\n    """Told {so}."""', "def told(word):\n    BODY"),
    ),
    passages=tuple(Passage(f"title {i}", f"Passage {{number}} {i}.") for i in range(50)),
    versions={},
)
PROMPTS = Prompts(CORPUS, seed=3)
MANY = [PROMPTS.draw(index) for index in range(2000)]


def text(prompt: Prompt) -> str:
    return prompt.messages[-1]["content"] if prompt.messages else prompt.text


def test_seed_and_number_decide() -> None:
    assert [PROMPTS.draw(index) for index in range(200)] == MANY[:200]
    assert [Prompts(CORPUS, seed=4).draw(index) for index in range(200)] != MANY[:200]
    assert PROMPTS.draw(5, attempt=1) != PROMPTS.draw(5)


def test_a_prompt_of_today_is_a_prompt_of_tomorrow() -> None:
    """If this fails, what is drawn has changed: raise VERSION, or old and new replies mix in one directory."""
    assert module.VERSION == 1
    first = Prompts(CORPUS, seed=1).draw(1)
    assert (first.kind, first.temperature, first.seed) == ("document question", 0.9, 2542563106861712288)


def test_kinds_come_in_their_shares() -> None:
    seen = Counter(prompt.kind for prompt in MANY)
    assert sum(share for share, _ in KINDS.values()) == pytest.approx(1)
    for kind, (share, _) in KINDS.items():
        assert seen[kind] / len(MANY) == pytest.approx(share, abs=0.03)


def test_half_is_greedy_and_half_warm() -> None:
    warm = [prompt.temperature for prompt in MANY if prompt.temperature]
    assert len(warm) / len(MANY) == pytest.approx(0.5, abs=0.05)
    assert 0.7 <= min(warm) < 0.75
    assert 0.95 < max(warm) <= 1.0
    assert len({prompt.seed for prompt in MANY}) == len(MANY)


def test_continuations_are_no_chats_and_all_others_are() -> None:
    for prompt in MANY:
        assert bool(prompt.messages) is (prompt.kind != "code continuation")
        assert bool(prompt.text) is (prompt.kind == "code continuation")
        assert [message["role"] for message in prompt.messages][-1:] == (["user"] if prompt.messages else [])
    assert sum(len(prompt.messages) == 2 for prompt in MANY) / len(MANY) == pytest.approx(0.19, abs=0.04)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("code completion", "old"),
        ("code continuation", "def told(word):"),
        ("explanation", "BODY"),
        ("edit", "BODY"),
        ("document question", "Passage {number}"),
        ("summary", "Passage {number}"),
    ],
)
def test_the_material_is_in_the_prompt_as_it_stands(kind: str, words: str) -> None:
    found = [prompt for prompt in MANY if prompt.kind == kind]
    assert found
    assert all(words in text(prompt) for prompt in found)


def test_no_place_is_left_unfilled() -> None:
    for prompt in MANY:
        left = text(prompt).replace("{so}", "").replace("{number}", "")
        assert "{" not in left, left


def test_renaming_asks_for_a_word_that_is_there() -> None:
    asked = [text(prompt) for prompt in MANY if text(prompt).startswith("Rename the variable")]
    assert asked
    assert all(line.startswith("Rename the variable `word` to") for line in asked)


def test_completions_show_no_body() -> None:
    assert all("BODY" not in text(prompt) for prompt in MANY if prompt.kind.startswith("code"))


@pytest.mark.parametrize("make", [question, list_request])
def test_questions_are_many_and_whole(make: object) -> None:
    assert callable(make)
    made = {make(random.Random(i)) for i in range(300)}
    assert len(made) > 250
    for line in made:
        assert line[0].isupper()
        assert line[-1] in ".?"
        assert "\n" not in line


def test_problems_are_asked_in_four_ways() -> None:
    made = ProblemPrompts([Problem("f", "def f():\n    pass\n"), Problem("g", "def g():\n")], seed=1)
    drawn = [made.draw(index) for index in range(len(made))]
    assert [(bool(prompt.messages), prompt.temperature) for prompt in drawn] == [
        (True, 0.0),
        (True, 0.8),
        (False, 0.0),
        (False, 0.8),
    ] * 2
    assert drawn[2].text == "def f():\n    pass\n"
    assert "def g():" in drawn[4].messages[0]["content"]
    assert len({prompt.seed for prompt in drawn}) == 8
    with pytest.raises(IndexError):
        made.draw(8)
