"""`tfjax generate` against an engine that replies at once."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tfjax import generate, runtime
from tfjax.config import ServeConfig
from tfjax.engine.api import Finished, Generation, Sampling, Sink, Stats, Ticket, Tokens
from tfjax.runtime import Runtime
from tfjax.server import logs

STATS = Stats(
    prompt_tokens=3,
    completion_tokens=5,
    cached_tokens=0,
    rounds=2,
    drafted=4,
    accepted=3,
    drafted_per_position=(1, 1, 1, 1),
    accepted_per_position=(1, 1, 1, 0),
    drafted_rounds=1,
    min_rows=2,
    queue_ms=0.0,
    prefill_ms=8.0,
    ttft_ms=10.0,
    decode_ms=40.0,
    seed=7,
    token_sha256="ab" * 32,
)


class Characters:
    """A tokenizer whose tokens are code points."""

    bos_token = "<s>"
    eos_token = "</s>"

    def __init__(self, chat_template: str | None) -> None:
        self.chat_template = chat_template

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]


class Engine:
    """Replies with two pieces of text; keeps what it was asked."""

    def __init__(self, *, context: int = 100, reason: str = "stop", chat_template: str | None = None) -> None:
        self.context = context
        self.reason = reason
        self.tokenizer = Characters(chat_template)
        self.requests: list[Generation] = []
        self.config: ServeConfig | None = None
        self.cancelled = False
        self.closed = False

    def submit(self, generation: Generation, sink: Sink) -> Ticket:
        self.requests.append(generation)
        sink(Tokens((1, 2), "Hel"))
        sink(Tokens((3,), "lo"))
        sink(Finished(self.reason, STATS, "NaN in layer 3" if self.reason == "error" else None))
        return Ticket(self.cancel, lambda: False)

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        self.closed = True


@contextmanager
def unchanged_logging() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in logs.LOGGERS]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    made = Engine()

    def load_engine(config: ServeConfig, progress: Any) -> Engine:
        logging.getLogger("tfjax.engine.load").info("row invariance proved")
        made.config = config
        return made

    monkeypatch.setattr(runtime, "prepare_runtime", lambda: Runtime(None, {}, ()))
    monkeypatch.setitem(sys.modules, "tfjax.engine.load", SimpleNamespace(load_engine=load_engine))
    with unchanged_logging():
        yield made
    assert made.closed or made.config is None


def test_text_on_stdout_and_counts_on_stderr(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["model", "abc"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hello\n"
    proof, summary = captured.err.splitlines()
    assert proof.endswith(" INFO row invariance proved")
    assert summary == (
        "3 prompt + 5 reply tokens, first after 10 ms, 100.0 tokens/s, 2 rounds, 3 of 4 drafts kept, seed 7, "
        "sha256 abababababababab"
    )


def test_greedy_by_default(engine: Engine) -> None:
    generate.main(["model", "abc"])
    [request] = engine.requests
    assert request.prompt == (97, 98, 99)
    assert request.sampling == Sampling(temperature=0.0)
    assert request.draft
    assert engine.config == ServeConfig(model="model")


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--temperature", "0.8"], "temperature", 0.8),
        (["--top-k", "40"], "top_k", 40),
        (["--top-p", "0.9"], "top_p", 0.9),
        (["--min-p", "0.1"], "min_p", 0.1),
        (["--seed", "18446744073709551615"], "seed", 2**64 - 1),
    ],
)
def test_each_sampling_flag_reaches_the_request(engine: Engine, words: list[str], field: str, value: float) -> None:
    generate.main(["model", "abc", *words])
    assert getattr(engine.requests[0].sampling, field) == value


def test_max_tokens_is_cut_to_what_the_context_leaves(engine: Engine) -> None:
    generate.main(["model", "abc", "--max-tokens", "5"])
    generate.main(["model", "abc"])
    assert [request.max_tokens for request in engine.requests] == [5, 97]


def test_engine_flags_reach_the_engine(engine: Engine) -> None:
    generate.main(["model", "abc", "--no-drafts", "--dtype", "float32", "--max-model-len", "64", "--offline"])
    expected = ServeConfig(model="model", no_drafts=True, dtype="float32", context=64, offline=True)
    assert engine.config == expected
    assert not engine.requests[0].draft


def test_settings_of_the_server_do_not_matter(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFJAX_HOST", "0.0.0.0")
    monkeypatch.setenv("TFJAX_API_KEY", "")
    monkeypatch.setenv("TFJAX_API_KEY_FILE", "/no/such/file")
    assert generate.main(["model", "abc"]) == 0
    assert engine.config == ServeConfig(model="model")


def test_a_dash_reads_the_prompt(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("xyz"))
    generate.main(["model", "-"])
    assert engine.requests[0].prompt == (120, 121, 122)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--chat"], "<s>user:abc;assistant:"),
        (["--system", "short"], "<s>system:short;user:abc;assistant:"),
    ],
)
def test_chat_uses_the_models_template(engine: Engine, words: list[str], text: str) -> None:
    engine.tokenizer.chat_template = (
        "{{ bos_token }}{% for message in messages %}{{ message.role }}:{{ message.content }};{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    assert generate.main(["model", "abc", *words]) == 0
    assert "".join(map(chr, engine.requests[0].prompt)) == text


def test_chat_without_a_template_says_so(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["model", "abc", "--chat"]) == 1
    assert "tfjax generate: error: the model has no chat template" in capsys.readouterr().err


def test_prompts_that_cannot_be_answered(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["model", ""]) == 1
    assert "the prompt is empty" in capsys.readouterr().err
    assert engine.config is None, "the model was loaded first"
    assert generate.main(["model", "a" * 100]) == 1
    assert "the prompt has 100 tokens and the context holds 100" in capsys.readouterr().err
    assert generate.main(["model", "a" * 99]) == 0


@pytest.mark.parametrize(("reason", "code"), [("stop", 0), ("length", 0), ("cancelled", 130), ("error", 1)])
def test_exit_codes(engine: Engine, reason: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    engine.reason = reason
    assert generate.main(["model", "abc"]) == code
    assert ("NaN in layer 3" in capsys.readouterr().err) is (reason == "error")


def test_ctrl_c_cancels_and_waits_for_the_end(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(generate.queue.SimpleQueue[Any]):  # type: ignore[misc, name-defined]
        raised = False

        def get(self) -> Any:  # type: ignore[override]
            if not Interrupted.raised:
                Interrupted.raised = True
                raise KeyboardInterrupt
            return super().get()

    monkeypatch.setattr(generate.queue, "SimpleQueue", Interrupted)  # type: ignore[attr-defined]
    engine.reason = "cancelled"
    assert generate.main(["model", "abc"]) == 130
    assert engine.cancelled
