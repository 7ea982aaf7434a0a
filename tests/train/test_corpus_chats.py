"""Chats out of functions: deterministic, in the template's form, no more than asked for."""

from __future__ import annotations

from tests.train.tiny_target import FUNCTIONS
from tfjax.text.chat_template import ChatTemplate
from tfjax.train.corpus_chats import chats, fenced
from tfjax.train.target_tokenizer import CHAT_TEMPLATE


def test_chats_have_the_templates_form() -> None:
    template = ChatTemplate(CHAT_TEMPLATE, "", "<|im_end|>")
    for chat in chats(FUNCTIONS, 10**6):
        turns = [turn.removeprefix("<|im_start|>") for turn in chat.split("<|im_end|>\n")[:-1]]
        messages = [dict(zip(("role", "content"), turn.split("\n", 1), strict=True)) for turn in turns]
        assert [message["role"] for message in messages] in (["user", "assistant"], ["system", "user", "assistant"])
        assert template.render(messages, add_generation_prompt=False) == chat


def test_answers_are_functions_or_their_docstrings() -> None:
    found = chats(FUNCTIONS[:1], 10**6)
    answers = {chat.split("<|im_start|>assistant\n")[1] for chat in chats(FUNCTIONS, 10**6)}
    assert len(found) == 1
    code = {fenced(function.source) + "<|im_end|>\n" for function in FUNCTIONS}
    prose = {function.docstring + "<|im_end|>\n" for function in FUNCTIONS}
    assert answers <= code | prose
    assert answers & code
    assert answers & prose


def test_there_are_no_more_than_asked_for_and_a_few_are_the_first_of_many() -> None:
    every = chats(FUNCTIONS, 10**6)
    few = chats(FUNCTIONS, 3000)
    assert len(every) == len(FUNCTIONS)
    assert 2000 < sum(map(len, few)) <= 3000
    assert few == every[: len(few)]


def test_a_function_decides_its_chat_alone() -> None:
    assert set(chats(FUNCTIONS[:50], 10**6)) < set(chats(FUNCTIONS, 10**6))
    assert chats(FUNCTIONS[::-1], 10**6) == chats(FUNCTIONS, 10**6)
