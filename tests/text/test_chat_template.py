"""Prompts equal those of jinja2's sandbox; no template can harm or stall the process that asks for one."""

from __future__ import annotations

import concurrent.futures
import gc
import importlib.util
import os
import resource
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import minijinja
import pytest

import tfjax
from tests.text import jinja_reference
from tfjax.checkpoints import open_checkpoint
from tfjax.text import chat_template, load_tokenizer
from tfjax.text.chat_template import MAX_TEMPLATE_BYTES, RESERVED, ChatTemplate, TemplateError
from tfjax.text.template_worker import MEMORY_BYTES

TEMPLATES = Path(__file__).parent / "templates"
NOW = datetime(2025, 7, 4, 12, 30, tzinfo=UTC)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city, in °C & <b>bold</b>",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
CALL = {"type": "function", "id": "c1", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "n": 1}}}
CHATS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": "Hello"}],
    "system": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi\n\n there "}],
    "empty system": [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}],
    "turns": [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "<think>\nsum\n</think>\n\n2"},
        {"role": "user", "content": "and 2+2?"},
        {"role": "assistant", "content": "<think>\nsum\n</think>\n\n4"},
        {"role": "user", "content": "{{ 7 * 7 }} {% raw %} <|im_end|> 漢字 😀 \u2028"},
    ],
    "tool use": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": '{"t": 21}'},
        {"role": "assistant", "content": "21 degrees", "reasoning_content": "the tool said so"},
    ],
}


@pytest.fixture
def make() -> Iterator[Callable[..., ChatTemplate]]:
    """Makes templates that are closed after the test."""
    made: list[ChatTemplate] = []

    def build(source: str, **options: Any) -> ChatTemplate:
        made.append(ChatTemplate(source, "<s>", "</s>", clock=lambda: NOW, **options))
        return made[-1]

    yield build
    for template in made:
        template.close()


def assert_equal_to_jinja2(template: ChatTemplate, source: str, **given: Any) -> None:
    context = {"bos_token": "<s>", "eos_token": "</s>", **given, **given.get("variables", {})}
    context.pop("variables", None)
    assert template.render(**given) == jinja_reference.render(source, NOW, context)


@pytest.mark.parametrize("name", sorted(path.stem for path in TEMPLATES.glob("*.jinja")))
def test_equals_jinja2(make: Callable[..., ChatTemplate], name: str) -> None:
    source = (TEMPLATES / f"{name}.jinja").read_text()
    template = make(source)
    for chat in CHATS.values():
        for tools in (None, TOOLS):
            for start in (True, False):
                assert_equal_to_jinja2(template, source, messages=chat, tools=tools, add_generation_prompt=start)


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("qwen3_style", {"enable_thinking": False}),
        ("qwen3_style", {"enable_thinking": True}),
        ("llama3_style", {"date_string": "26 Jul 2024", "tools_in_user_message": False}),
        ("lfm2_style", {"keep_past_thinking": True}),
    ],
)
def test_variables_equal_jinja2(make: Callable[..., ChatTemplate], name: str, variables: dict[str, Any]) -> None:
    source = (TEMPLATES / f"{name}.jinja").read_text()
    template = make(source)
    for chat in CHATS.values():
        assert_equal_to_jinja2(
            template, source, messages=chat, tools=TOOLS, add_generation_prompt=True, variables=variables
        )
    assert template.render(CHATS["turns"], variables=variables, tools=TOOLS) != template.render(CHATS["turns"])


def test_content_parts_equal_jinja2(make: Callable[..., ChatTemplate]) -> None:
    source = (TEMPLATES / "lfm2_style.jinja").read_text()
    parts = [{"role": "user", "content": [{"type": "text", "text": "a<b>"}, {"type": "image", "n": 1}]}]
    assert_equal_to_jinja2(make(source), source, messages=parts, add_generation_prompt=True)


@pytest.mark.weights
def test_default_model_equals_jinja2(make: Callable[..., ChatTemplate], smollm2_gguf: Path) -> None:
    source = load_tokenizer(open_checkpoint(smollm2_gguf)).chat_template
    assert source is not None
    template = make(source)
    for chat in CHATS.values():
        assert_equal_to_jinja2(template, source, messages=chat, add_generation_prompt=True)
    assert template.render(CHATS["one"]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_clock_is_the_callers(make: Callable[..., ChatTemplate]) -> None:
    assert make("{{ strftime_now('%Y-%m-%d') }}").render([]) == "2025-07-04"


def test_refusal_of_the_template_is_passed_on(make: Callable[..., ChatTemplate]) -> None:
    template = make("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TemplateError, match=r"refused the messages: roles must alternate$") as raised:
        template.render([])
    assert raised.value.refused
    # The process is as good as new.
    with pytest.raises(TemplateError, match="refused"):
        template.render([])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\n{{ messages[0].content.a.b }}", r"failed: it uses a value that these messages do not have \(line 2\)$"),
        ("{{ 'x' | nosuch }}", r"failed: it uses an unknown filter \(line 1\)$"),
        ("{{ nosuch() }}", r"failed: it calls an unknown function \(line 1\)$"),
        ("{{ 'x'.nosuch() }}", r"failed: it calls an unknown method \(line 1\)$"),
        ("{{ 1 is nosuch }}", r"failed: it uses an unknown test \(line 1\)$"),
        ("{{ 1 // 0 }}", r"failed: it failed on these messages"),
        ("{% include 'other' %}", r"failed: it failed on these messages"),
    ],
)
def test_failures_are_told_in_our_own_words(make: Callable[..., ChatTemplate], source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message) as raised:
        make(source).render([{"role": "user", "content": "x"}])
    assert not raised.value.refused


@pytest.mark.parametrize("source", ["{% if x %}", "{{ 1 + }}", "{% nosuch %}", "{{ 'a }}"])
def test_syntax_errors_come_when_it_is_made(make: Callable[..., ChatTemplate], source: str) -> None:
    with pytest.raises(TemplateError, match=r"syntax error \(line 1\)"):
        make(source)


def test_size_limit(make: Callable[..., ChatTemplate]) -> None:
    assert make("x" * MAX_TEMPLATE_BYTES).render([]) == "x" * MAX_TEMPLATE_BYTES
    with pytest.raises(TemplateError, match="has 262145 bytes; the limit is 262144"):
        make("x" * (MAX_TEMPLATE_BYTES + 1))


ENDLESS = (
    "{% for a in range(9000) %}{% for b in range(9000) %}{% for c in range(9000) %}{% endfor %}{% endfor %}{% endfor %}"
)
GROWING = (
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}"
)
HOSTILE = {
    "endless loop": ENDLESS,
    "doubling string": GROWING,
    "huge repetition": "{{ 'a' * 100000000000 }}",
    "huge padding": "{{ '%099999999999d' | format(1) }}",
    "macro calling itself": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "value holding itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "json of itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns | tojson }}",
    "template including itself": "{% include 'template' %}",
    "nested value": "{% set ns = namespace(x=[]) %}{% for j in range(9) %}{% for i in range(9900) %}"
    "{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}{{ ns.x }}",
    "deep signs": "{{ " + "-" * 100_000 + "1 }}",
    "deep not": "{{ " + "not " * 60_000 + "1 }}",
    "deep brackets": "{{ " + "[" * 100_000 + "]" * 100_000 + " }}",
    "deep sum": "{{ 1" + "+1" * 100_000 + " }}",
    "deep concatenation": "{{ 1" + "~1" * 100_000 + " }}",
    "deep elif": "{% if 1 %}" + "{% elif 1 %}" * 20_000 + "{% endif %}",
}


def test_steps_are_counted(make: Callable[..., ChatTemplate]) -> None:
    with pytest.raises(TemplateError, match=r"failed: it takes more steps than allowed \(line 1\)"):
        make(ENDLESS, deadline_s=60.0).render([])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_in_an_error_in_bounded_time(make: Callable[..., ChatTemplate], name: str) -> None:
    started = time.monotonic()
    with pytest.raises(TemplateError):
        make(HOSTILE[name], deadline_s=3.0).render([])
    assert time.monotonic() - started < 10.0


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__self__ }}",
        "{{ cycler.__init__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ messages | attr('__class__') }}",
        "{{ self._TemplateReference__context }}",
        "{{ '{0.__class__}' | format(messages) }}",
    ],
)
def test_python_is_out_of_reach(make: Callable[..., ChatTemplate], source: str) -> None:
    try:
        text = make(source).render([{"role": "user"}])
    except TemplateError:
        return
    assert not any(word in text for word in ("<class", "<module", "object at", "<function", "mappingproxy"))


def test_a_template_that_kills_its_process_can_be_asked_again(make: Callable[..., ChatTemplate]) -> None:
    source = "{% set ns = namespace() %}{% set ns.x = ns %}{% if messages %}{{ ns }}{% endif %}fine"
    template = make(source)
    for _ in range(2):
        with pytest.raises(TemplateError, match="needs too much memory or depth"):
            template.render([{"role": "user", "content": "x"}])
        assert template.render([]) == "fine"


def test_deadline(make: Callable[..., ChatTemplate]) -> None:
    template = make("{% if messages %}" + ENDLESS + "{% endif %}fine", deadline_s=0.05)
    with pytest.raises(TemplateError, match=r"took longer than 0\.05 s"):
        template.render([{"role": "user", "content": "x"}])


def test_reserved_variables_are_refused(make: Callable[..., ChatTemplate]) -> None:
    template = make("".join(f"{{{{ {name} }}}}" for name in sorted(RESERVED - {"self", "loop", "super"})))
    assert {"messages", "bos_token", "raise_exception", "tokenize", "self"} <= RESERVED
    assert template.variables == frozenset()
    for name in RESERVED:
        with pytest.raises(TemplateError, match=rf"variable '{name}' is reserved") as raised:
            template.render([], variables={name: 1})
        assert raised.value.refused


def test_only_variables_that_the_template_reads(make: Callable[..., ChatTemplate]) -> None:
    template = make("{{ messages }}{{ enable_thinking }}{% set own = 1 %}{{ own }}{{ eos_token }}")
    assert template.variables == {"enable_thinking"}
    with pytest.raises(TemplateError, match=r"takes no variable 'x'; it takes: enable_thinking$") as raised:
        template.render([], variables={"x": 1})
    assert raised.value.refused
    with pytest.raises(TemplateError, match=r"it takes: none$"):
        make("fixed").render([], variables={"x": 1})


@pytest.mark.parametrize("content", [float("nan"), float, {1, 2}, b"bytes", "a\ud800b"])
def test_messages_that_are_no_json_text(make: Callable[..., ChatTemplate], content: object) -> None:
    template = make("{{ messages[0].content }}")
    with pytest.raises(TemplateError, match=r"no JSON values|lone surrogate"):
        template.render([{"role": "user", "content": content}])
    assert template.render([{"role": "user", "content": "fine"}]) == "fine"


def test_deeply_nested_messages(make: Callable[..., ChatTemplate]) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    template = make("{{ messages[0].content | tojson | length }}")
    with pytest.raises(TemplateError):
        template.render([{"role": "user", "content": nested}])
    assert template.render([{"role": "user", "content": "fine"}]) == "6"
    # Unpacked by hand: freeing a list this deep is no part of the test.
    while nested:
        nested = nested.pop()


def test_large_chats_have_steps_enough(make: Callable[..., ChatTemplate]) -> None:
    template = make((TEMPLATES / "chatml.jinja").read_text())
    chat = [{"role": "user", "content": "x" * 1000}] * 4096
    assert len(template.render(chat)) > 4_096_000


def test_several_threads_get_their_own_prompts(make: Callable[..., ChatTemplate]) -> None:
    template = make("{{ messages[0].content }}")
    texts = [str(number) * 100 for number in range(64)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        prompts = list(pool.map(lambda text: template.render([{"role": "user", "content": text}]), texts))
    assert prompts == texts


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the limits of another process")
def test_the_process_has_limits_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFJAX_API_KEY", "secret")
    template = ChatTemplate("x", "", "")
    process = template._worker._process
    assert process is not None
    assert resource.prlimit(process.pid, resource.RLIMIT_AS) == (MEMORY_BYTES, MEMORY_BYTES)
    assert resource.prlimit(process.pid, resource.RLIMIT_FSIZE) == (0, 0)
    assert b"TFJAX" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    template.close()


def test_the_process_ends_with_its_template() -> None:
    template = ChatTemplate("x", "", "")
    process = template._worker._process
    assert process is not None
    assert process.poll() is None
    del template
    gc.collect()
    assert process.poll() is not None
    closed = ChatTemplate("x", "", "")
    process = closed._worker._process
    closed.close()
    assert process is not None
    assert process.poll() is not None
    assert closed.render([]) == "x"
    closed.close()


def test_the_process_ends_with_its_parent() -> None:
    """Its input closes then, which also a killed parent cannot prevent."""
    template = ChatTemplate("x", "", "")
    process = template._worker._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=5) == 0
    assert os.getpid() != process.pid


def test_packages_that_only_a_path_names_are_found(tmp_path: Path) -> None:
    """Python with no package of its own; the worker's, which reads no variables, is told where its one package lies."""
    venv.create(tmp_path / "bare", with_pip=False)
    packages = [str(Path(module.__file__).parents[1]) for module in (tfjax, minijinja)]
    program = (
        "from tfjax.text.chat_template import ChatTemplate\n"
        "print(ChatTemplate('{{ messages[0].content }}', '', '').render([{'content': 'rendered'}]))"
    )
    ran = subprocess.run(
        [tmp_path / "bare/bin/python", "-c", program],
        env={"PYTHONPATH": os.pathsep.join(packages)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "rendered\n", ran.stderr


def test_an_engine_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "__init__.py"
    broken.write_text("import nothing_of_this_name")
    monkeypatch.setattr(chat_template, "_engine_file", lambda: str(broken))
    with pytest.raises(TemplateError, match="minijinja cannot be imported; install it again"):
        ChatTemplate("x", "", "")
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TemplateError, match="minijinja cannot be imported; install it again"):
        ChatTemplate("x", "", "")


def test_a_process_that_ends_by_itself_is_not_called_short_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("raise SystemExit(3)")
    monkeypatch.setattr(chat_template, "_WORKER", worker)
    with pytest.raises(TemplateError, match="process ended with exit code 3, before it answered"):
        ChatTemplate("x", "", "")
