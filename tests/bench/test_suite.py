from __future__ import annotations

from tfjax.bench.suite import KINDS, prompt_of, suite


def test_eight_streams_have_eight_prompts() -> None:
    for kind in KINDS:
        prompts = suite()[kind]
        assert len({prompt.text for prompt in prompts}) == len(prompts) == 8
        assert all(prompt.text == prompt_of(kind, prompt.index).text for prompt in prompts)


def test_a_kind_begins_again() -> None:
    assert prompt_of("code", 9) is prompt_of("code", 1)


def test_code_is_continued_and_all_else_is_chat() -> None:
    assert prompt_of("code", 0).route == "/v1/completions"
    assert prompt_of("code", 0).fields == {"prompt": prompt_of("code", 0).text}
    assert all(prompt.chat for kind, prompts in suite().items() if kind != "code" for prompt in prompts)
    message = {"role": "user", "content": prompt_of("edit", 0).text}
    assert prompt_of("edit", 0).fields == {"messages": [message]}
    assert prompt_of("edit", 0).route == "/v1/chat/completions"
