"""Chats made of documented functions, so that a model trained on code also answers in turns."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tfjax.train.harvest import Function
from tfjax.train.target_tokenizer import SPECIAL_TOKENS, TURN_END, TURN_START

ANSWERS_WITH_CODE = (
    "Write a Python function `{name}`: {docstring}",
    "Write a function called {name}. {docstring}",
    "How would one implement this in Python?\n\n{docstring}",
    "Implement `{name}`, described as follows:\n\n{docstring}",
)
ANSWERS_WITH_WORDS = (
    "What does this function do?\n\n{code}",
    "Explain this code:\n\n{code}",
    "Write a docstring for this function:\n\n{code}",
)
COMPLETES = ("Complete this Python function:\n\n{head}", "Finish this function:\n\n{head}")
WITH_SYSTEM = 0.1
SYSTEM = "You are a helpful assistant."


def chats(functions: Sequence[Function], most_chars: int) -> list[str]:
    """Chats in the form of the chat template, without its first token, about an even choice of the functions.

    Args:
        functions: with docstrings; each function decides its chat alone.
        most_chars: of all chats together.
    """
    order = sorted(functions, key=lambda function: random.Random(function.source).random())  # noqa: S311  (no secret)
    found: list[str] = []
    left = most_chars
    for function in order:
        chat = _chat(function)
        if (left := left - len(chat)) < 0:
            break
        found.append(chat)
    return found


def _chat(function: Function) -> str:
    chance = random.Random(f"chat/{function.module}/{function.source}")  # noqa: S311  (no secret)
    code = fenced(function.source)
    kind = chance.choices(("code", "words", "rest"), (5, 2, 3))[0]
    if kind == "code":
        question = chance.choice(ANSWERS_WITH_CODE).format(name=function.name, docstring=function.docstring)
        answer = code
    elif kind == "words":
        question, answer = chance.choice(ANSWERS_WITH_WORDS).format(code=code), function.docstring
    else:
        question, answer = chance.choice(COMPLETES).format(head=fenced(function.head)), code
    system = [("system", SYSTEM)] if chance.random() < WITH_SYSTEM else []
    return "".join(_turn(role, text) for role, text in (*system, ("user", question), ("assistant", answer)))


def fenced(code: str) -> str:
    """Code as chats show it."""
    return f"```python\n{code.rstrip()}\n```"


def _turn(role: str, text: str) -> str:
    return f"{SPECIAL_TOKENS[TURN_START]}{role}\n{text.strip()}{SPECIAL_TOKENS[TURN_END]}\n"
