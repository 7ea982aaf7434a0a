"""What is asked of the engine for one API key."""

from __future__ import annotations

from tfjax.engine.api import Generation
from tfjax.server.plan import Plan

GENERATIONS = (Generation("a", (1,), 1), Generation("b", (1,), 1, cache_salt="mine"))
PLAN = Plan("id", "model", 0, GENERATIONS, 2, stream=False, include_usage=False, wants_logprobs=False)


def salts(plan: Plan) -> list[str]:
    return [one.cache_salt for one in plan.generations]


def test_no_two_of_keys_and_salts_share_a_prompt() -> None:
    made = [salt for label in ("-", "key-1", "key-11", "file-1") for salt in salts(PLAN.of_key(label))]
    assert len(set(made)) == len(made)
    assert salts(PLAN.of_key("key-1")) == salts(PLAN.of_key("key-1"))


def test_a_salt_cannot_speak_for_another_key() -> None:
    forged = Plan("id", "model", 0, (Generation("a", (1,), 1, cache_salt="\nmine"),), 1, False, False, False)
    assert not set(salts(forged.of_key("key-1"))) & set(salts(PLAN.of_key("key-1")))


def test_all_else_stays() -> None:
    assert [one.id for one in PLAN.of_key("key-1").generations] == ["a", "b"]
    assert PLAN.of_key("key-1").prompt_tokens == 2
