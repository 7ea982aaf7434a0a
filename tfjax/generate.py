"""`tfjax generate`: one prompt, its text on stdout as it comes, counts and times on stderr."""

from __future__ import annotations

import argparse
import queue
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfjax import __version__
from tfjax.config import ServeConfig
from tfjax.kinds import Integer, Number
from tfjax.options import ConfigError, Kind, add_options
from tfjax.parsing import CommandParser
from tfjax.setting_values import ENGINE_SETTINGS
from tfjax.sources import resolve
from tfjax.terminal import CANCELLED, FAILED, OK, CommandError, progress_on_stderr, run_command

if TYPE_CHECKING:
    from tfjax.engine.api import Event, Finished, Generation, Stats
    from tfjax.engine.engine import Engine
    from tfjax.text.tokenizer import Tokenizer

NAME = "tfjax generate"

# Flag without dashes -> (what it takes, default, help). The names are those of the fields of a request.
SAMPLING: Mapping[str, tuple[Kind[int] | Kind[float], float, str]] = {
    "max_tokens": (Integer(1, 1 << 24), 256, "most tokens to generate"),
    "temperature": (Number(0, 100), 0.0, "0 takes the most likely token each time; higher is more varied"),
    "top_k": (Integer(0, 1 << 24), 0, "draw from that many most likely tokens; 0 is off"),
    "top_p": (Number(0, 1), 1.0, "draw from the most likely tokens that hold this share; 1 is off"),
    "min_p": (Number(0, 1), 0.0, "leave out tokens less likely than this share of the likeliest; 0 is off"),
    "seed": (Integer(0, (1 << 64) - 1), 0, "the same seed gives the same text"),
}


def parser() -> CommandParser:
    """The command line of `tfjax generate`."""
    result = CommandParser(
        prog=NAME,
        usage="tfjax generate MODEL PROMPT [flags]",
        description="Continue one prompt. The text goes to stdout as it comes, counts and times go to stderr.",
    )
    result.add_argument("model", metavar="MODEL", help="directory of safetensors, GGUF file or hub id")
    result.add_argument("prompt", metavar="PROMPT", help="the text to continue; - reads it from stdin")
    result.add_argument(
        "--chat", action="store_true", help="put the prompt into the model's chat template as a user message"
    )
    result.add_argument("--system", metavar="TEXT", help="system message before it; implies --chat")
    group = result.add_argument_group("sampling")
    for name, (kind, default, text) in SAMPLING.items():
        flag = "--" + name.replace("_", "-")
        group.add_argument(flag, metavar=kind.metavar, help=f"{text} (default: {default})", default=argparse.SUPPRESS)
    add_options(result, ServeConfig, set(ENGINE_SETTINGS) - {"model"})
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Generates one reply and returns the exit code."""
    arguments = parser().parse(argv)
    return run_command(NAME, lambda: _generate(arguments))


def sampling_values(arguments: argparse.Namespace) -> dict[str, float]:
    """The sampling flags, checked, with defaults for those not given.

    Raises:
        ConfigError: a value out of its limits.
    """
    values: dict[str, float] = {}
    for name, (kind, default, _) in SAMPLING.items():
        text = getattr(arguments, name, None)
        try:
            values[name] = default if text is None else kind.parse(text)
        except ValueError as error:
            raise ConfigError(f"--{name.replace('_', '-')}: {text!r} {error}") from None
    return values


def _generate(arguments: argparse.Namespace) -> int:
    sampling = sampling_values(arguments)
    # As many lanes as the server has, so that both find the same compiled programs in the cache.
    config = resolve(ServeConfig, arguments, host="127.0.0.1", api_key=(), api_key_file=None)
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    if not prompt and not _is_chat(arguments):
        raise CommandError("the prompt is empty; give some text to continue")

    from tfjax.runtime import prepare_runtime
    from tfjax.server.logs import configure_logging

    prepare_runtime()
    configure_logging("text")
    from tfjax.engine.load import load_engine

    with progress_on_stderr() as progress:
        engine = load_engine(config, progress)
    try:
        text = _templated(engine.tokenizer, prompt, arguments.system) if _is_chat(arguments) else prompt
        finished = _stream(engine, _request(engine, text, sampling, draft=config.drafts))
    finally:
        engine.close()
    print(_summary(finished.stats), file=sys.stderr)
    if finished.error is not None:
        raise CommandError(finished.error)
    return {"cancelled": CANCELLED, "error": FAILED}.get(finished.reason, OK)


def _is_chat(arguments: argparse.Namespace) -> bool:
    return bool(arguments.chat or arguments.system is not None)


def _templated(tokenizer: Tokenizer, prompt: str, system: str | None) -> str:
    from tfjax.text.chat_template import ChatTemplate, TemplateError

    if tokenizer.chat_template is None:
        raise CommandError("the model has no chat template; leave out --chat and --system")
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": prompt})
    template = ChatTemplate(tokenizer.chat_template, tokenizer.bos_token, tokenizer.eos_token)
    try:
        return template.render(messages)
    except TemplateError as error:
        raise CommandError(f"the model's chat template refuses these messages: {error}") from error


def _request(engine: Engine, text: str, sampling: Mapping[str, float], *, draft: bool) -> Generation:
    from tfjax.engine.api import Generation, Sampling

    tokens = tuple(engine.tokenizer.encode(text))
    if not tokens:
        raise CommandError("the prompt has no tokens; give some text to continue")
    room = engine.context - len(tokens)
    if room < 1:
        raise CommandError(
            f"the prompt has {len(tokens)} tokens and the context holds {engine.context}, the reply included; "
            "shorten it or raise --context"
        )
    values = dict(sampling)
    max_tokens = min(int(values.pop("max_tokens")), room)
    return Generation(NAME, tokens, max_tokens, Sampling(**values), draft=draft)  # type: ignore[arg-type]


def _stream(engine: Engine, request: Generation) -> Finished:
    """Prints text as it comes. Ctrl-C cancels the request, whose end still arrives as an event."""
    from tfjax.engine.api import Tokens

    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    ticket = engine.submit(request, events.put)
    while True:
        try:
            event = events.get()
            if not isinstance(event, Tokens):
                print(flush=True)
                return event
            print(event.text, end="", flush=True)
        except KeyboardInterrupt:
            ticket.cancel()


def _summary(stats: Stats) -> str:
    rate = f"{(stats.completion_tokens - 1) / stats.decode_ms * 1e3:.1f} tokens/s, " if stats.decode_ms > 0 else ""
    drafts = f"{stats.accepted} of {stats.drafted} drafts kept" if stats.drafted else "no drafts"
    return (
        f"{stats.prompt_tokens} prompt + {stats.completion_tokens} reply tokens, first after {stats.ttft_ms:.0f} ms, "
        f"{rate}{stats.rounds} rounds, {drafts}, seed {stats.seed}, sha256 {stats.token_sha256[:16]}"
    )


if __name__ == "__main__":
    sys.exit(main())
