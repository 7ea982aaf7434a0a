"""Renders one chat template in a process of its own. Run as a script by `tfjax.text.chat_template`.

A template is untrusted input and the engine is native code: a template that recurses can overflow its stack and one
that grows can exhaust memory, which no exception reports. So it gets a process that may die, with little memory.

Its interpreter is isolated from the user's paths and variables, so that the caller says where the engine lies: the
argument is the file of minijinja's package.

Protocol: JSON objects, one a line. The first line in is {"source"}; the answer is {"variables"}, the names that the
template reads. Every further line is {"context", "now"}; the answer is {"text"}. Failures answer {"error", "message",
"line"} instead.
"""

from __future__ import annotations

import importlib.util
import json
import re
import resource
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import minijinja

MEMORY_BYTES = 1 << 30
FUEL = 20_000_000
NAME = "template"
# transformers marks what the assistant wrote with this block; it renders its body.
_GENERATION = re.compile(r"\{%(-?)\s*(end)?generation\s*(-?)%\}")
# {% set name = name | default(...) %} reads a name that the engine then counts as the template's own.
_DEFAULTED = re.compile(r"\{%-?\s*set\s+(\w+)\s*=[^%]*?\b\1\b")


class Refusal(Exception):
    """The template's own raise_exception."""


class NoEngine(Exception):
    """minijinja cannot be imported."""


def import_engine(file: str) -> None:
    """Import minijinja from its package's file, and nothing else from where that lies."""
    name, folder = "minijinja", str(Path(file).parent)
    try:
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[folder])
        if spec is None or spec.loader is None:
            raise ImportError(file)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:
        raise NoEngine from error


def environment(source: str, now: Callable[[], datetime]) -> minijinja.Environment:
    """An environment that renders as transformers' jinja2 does. Raises minijinja.TemplateError on a syntax error."""
    import minijinja

    def raise_exception(message: object) -> None:
        raise Refusal(str(message))

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    return minijinja.Environment(
        templates={NAME: _GENERATION.sub(_plain_block, source)},
        filters={"tojson": tojson},
        globals={"raise_exception": raise_exception, "strftime_now": lambda form: now().strftime(str(form))},
        fuel=FUEL,
        trim_blocks=True,
        lstrip_blocks=True,
        pycompat=True,
        # Autoescaping goes by the template's name; a prompt is never HTML.
        auto_escape_callback=lambda name: False,
    )


def given_defaults(source: str) -> set[str]:
    """Variables that the template sets to themselves or to a default."""
    return set(_DEFAULTED.findall(source))


def _plain_block(match: re.Match[str]) -> str:
    left, end, right = match.groups()
    return f"{{%{left} {'endif' if end else 'if true'} {right}%}}"


def _error(error: BaseException) -> dict[str, object]:
    line = getattr(error, "line", None)
    message = str(error)[:1000] if isinstance(error, Refusal) else ""
    return {"error": getattr(error, "kind", type(error).__name__), "message": message, "line": line}


def _limit() -> None:
    for limit, value in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        try:
            resource.setrlimit(limit, (value, value))
        except (OSError, ValueError):
            # Some systems know no such limit; the step limit and the caller's deadline remain.
            continue


def main() -> None:
    """Serves the protocol on standard input and output until the input ends."""
    _limit()
    clock = [datetime.fromtimestamp(0, tz=UTC)]

    def answer(value: dict[str, object]) -> None:
        sys.stdout.buffer.write(json.dumps(value).encode() + b"\n")
        sys.stdout.buffer.flush()

    lines = iter(sys.stdin.buffer)
    try:
        import_engine(sys.argv[1])
        source = json.loads(next(lines))["source"]
        env = environment(source, lambda: clock[0])
        answer({"variables": sorted(env.undeclared_variables_in_template(NAME) | given_defaults(source))})
    except Exception as error:  # noqa: BLE001 (whatever it is, the caller is told)
        answer(_error(error))
        return
    for line in lines:
        try:
            request = json.loads(line)
            clock[0] = datetime.fromisoformat(request["now"])
            answer({"text": env.render_template(NAME, **request["context"])})
        except Exception as error:  # noqa: BLE001 (a failed request is answered; the next may be fine)
            answer(_error(error))


if __name__ == "__main__":
    main()
