"""Chat messages to a prompt, by the model's own template, which is untrusted."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

MAX_TEMPLATE_BYTES = 256 * 1024
DEADLINE_S = 10.0
# All that an interpreter may need to start; keys and tokens stay out of the process.
_ENVIRONMENT = ("DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")
# Starting Python and compiling the template; on a busy machine that takes longer than any prompt.
START_DEADLINE_S = 30.0
# Between the last a process says and its end.
_END_S = 5.0
_WORKER = Path(__file__).with_name("template_worker.py")

# Names that a caller cannot set: what is given anyway, what the engine offers, and the options of transformers'
# apply_chat_template, which other servers once let a request override.
_GIVEN = ("add_generation_prompt", "bos_token", "eos_token", "messages", "tools")
_OFFERED = (
    *("caller", "cycler", "debug", "dict", "joiner", "lipsum", "loop", "namespace", "raise_exception", "range"),
    *("self", "strftime_now", "super", "tojson"),
)
_OPTIONS = (
    *("chat_template", "continue_final_message", "conversation", "max_length", "padding", "return_dict"),
    *("return_assistant_tokens_mask", "return_tensors", "tokenize", "tokenizer_kwargs", "truncation"),
)
RESERVED = frozenset(_GIVEN + _OFFERED + _OPTIONS)
_PROBLEMS = {
    "NoEngine": "minijinja cannot be imported; install it again",
    "OutOfFuel": "it takes more steps than allowed",
    "SyntaxError": "syntax error",
    "UndefinedError": "it uses a value that these messages do not have",
    "UnknownFilter": "it uses an unknown filter",
    "UnknownFunction": "it calls an unknown function",
    "UnknownMethod": "it calls an unknown method",
    "UnknownTest": "it uses an unknown test",
    "RecursionError": "the messages are nested too deeply",
}


class TemplateError(ValueError):
    """A prompt that could not be made. The message is fit for a client.

    Attributes:
        refused: the template itself refused these messages, or the caller set a variable that it cannot have; otherwise
            the template failed or exceeded a limit.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class ChatTemplate:
    """A compiled template, rendered in a process of its own. Safe to use from several threads, one render at a time.

    Attributes:
        variables: what a caller may set beside messages and tools: the names that this template reads.
    """

    def __init__(
        self,
        source: str,
        bos_token: str,
        eos_token: str,
        *,
        clock: Callable[[], datetime] = datetime.now,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """
        Raises:
            TemplateError: the template is too large, does not compile, or kills or stalls its process.
        """
        size = len(source.encode("utf-8", "surrogatepass"))
        if size > MAX_TEMPLATE_BYTES:
            raise TemplateError(f"the chat template has {size} bytes; the limit is {MAX_TEMPLATE_BYTES}")
        self._worker = _Worker(source, deadline_s)
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._clock = clock
        self.variables = frozenset(self._worker.start()) - RESERVED

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for `messages`.

        Args:
            messages, tools: JSON values in OpenAI's form.
            add_generation_prompt: whether to end with the start of the assistant's turn.
            variables: further template variables, such as enable_thinking; only names in `self.variables`.

        Raises:
            TemplateError: see its `refused`.
        """
        variables = variables or {}
        self._check(variables)
        context = {
            **variables,
            **self._tokens,
            "messages": list(messages),
            "add_generation_prompt": add_generation_prompt,
        }
        if tools is not None:
            context["tools"] = list(tools)
        return self._worker.render(context, self._clock())

    def close(self) -> None:
        """Ends the process. A later render starts another."""
        self._worker.stop()

    def _check(self, variables: Mapping[str, Any]) -> None:
        for name in variables:
            if name in RESERVED:
                raise TemplateError(f"chat template variable {name[:64]!r} is reserved", refused=True)
            if name not in self.variables:
                offered = ", ".join(sorted(self.variables)) or "none"
                message = f"the chat template takes no variable {name[:64]!r}; it takes: {offered}"
                raise TemplateError(message, refused=True)


class _Worker:
    """The process that renders, started again after it died."""

    def __init__(self, source: str, deadline_s: float) -> None:
        self._source = source
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> list[str]:
        """Starts the process; returns the names of the variables that the template reads."""
        with self._lock:
            return self._start()

    def render(self, context: Mapping[str, Any], now: datetime) -> str:
        try:
            request = _line({"context": context, "now": now.isoformat()})
        except UnicodeEncodeError as error:
            raise TemplateError("a message holds a lone surrogate, which has no UTF-8 form", refused=True) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise TemplateError("the messages are no JSON values, or are nested too deeply", refused=True) from error
        with self._lock:
            if self._process is None:
                self._start()
            return str(self._ask(request, self._deadline_s)["text"])

    def stop(self) -> None:
        with self._lock:
            self._drop()

    def _start(self) -> list[str]:
        command = [sys.executable, "-I", "-X", "utf8", str(_WORKER), _engine_file()]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            raise TemplateError("the chat template's process could not be started") from error
        weakref.finalize(self, _end, self._process)
        names: list[str] = self._ask(_line({"source": self._source}), START_DEADLINE_S)["variables"]
        return names

    def _ask(self, request: bytes, deadline_s: float) -> dict[str, Any]:
        """Sends a line and returns the answer; the process is killed when it takes too long."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(deadline_s, expire)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = b""
        finally:
            timer.cancel()
        if not answer.endswith(b"\n"):
            raise self._ended(deadline_s if expired.is_set() else None)
        reply: dict[str, Any] = json.loads(answer)
        if "error" in reply:
            raise _translated(reply)
        return reply

    def _ended(self, deadline_s: float | None) -> TemplateError:
        """Why there is no answer; `deadline_s` is one that has passed."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        status = self._process.returncode
        self._drop()
        if deadline_s is not None:
            return TemplateError(f"the chat template took longer than {deadline_s:g} s")
        if status is not None and status >= 0:
            return TemplateError(f"the chat template's process ended with exit code {status}, before it answered")
        return TemplateError("the chat template needs too much memory or depth")

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)


def _engine_file() -> str:
    """Where this process would import the template engine from; the isolated one may not look there by itself."""
    spec = importlib.util.find_spec("minijinja")
    if spec is None or spec.origin is None:
        raise TemplateError(f"the chat template failed: {_PROBLEMS['NoEngine']}")
    return str(Path(spec.origin).absolute())


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _translated(reply: Mapping[str, Any]) -> TemplateError:
    kind = reply["error"]
    if kind == "Refusal":
        return TemplateError(f"the chat template refused the messages: {reply['message']}", refused=True)
    problem = _PROBLEMS.get(kind, "it failed on these messages")
    where = f" (line {reply['line']})" if isinstance(reply["line"], int) else ""
    return TemplateError(f"the chat template failed: {problem}{where}")
