"""POST /v1/completions: text or token ids in, text out."""

from __future__ import annotations

from typing import cast

from tfjax.server.errors import bad_request
from tfjax.server.fields import check_fields
from tfjax.server.generation import check_choices, check_text_size, check_token, generations_of, sampling_of
from tfjax.server.jsonbody import convert, parse
from tfjax.server.model import Model, check_stream_options, new_plan
from tfjax.server.plan import Plan
from tfjax.server.schemas import CompletionRequest


def plan_completion(body: bytes, model: Model, id: str) -> Plan:
    """Reads and checks a request; runs on a worker thread.

    Raises:
        ApiError: 400 or 404 with the field's name.
    """
    raw = parse(body)
    ignored = check_fields(raw, CompletionRequest)
    request = convert(raw, CompletionRequest)
    name = model.checked_name(request.model)
    check_stream_options(request)
    sampling = sampling_of(request, model.engine, model.defaults, request.logprobs)
    check_choices(prompt_count(request.prompt), request.n or 1)
    prompts = prompts_of(request.prompt, model)
    generations = generations_of(
        id, prompts, request, model.engine, sampling, max_tokens=request.max_tokens, prompt_field="prompt"
    )
    prompt_tokens = sum(map(len, prompts))
    return new_plan(id, name, request, generations, prompt_tokens, request.logprobs is not None, ignored)


def prompt_count(prompt: str | list[str | int | list[int]]) -> int:
    """How many prompts a request holds; token ids alone are one."""
    if isinstance(prompt, str) or any(isinstance(item, int) for item in prompt):
        return 1
    return len(prompt)


def prompts_of(prompt: str | list[str | int | list[int]], model: Model) -> list[list[int]]:
    """Token ids of each prompt: a text, token ids, or a list of either kind."""
    if isinstance(prompt, str):
        return [_encoded(prompt, model, "prompt")]
    kinds = {type(item) for item in prompt}
    if not kinds:
        raise bad_request("The field 'prompt' is empty; give a text or token ids.", "prompt")
    if kinds == {int}:
        return [_checked(cast("list[int]", prompt), model, "prompt")]
    if kinds == {str}:
        return [_encoded(text, model, f"prompt[{at}]") for at, text in enumerate(cast("list[str]", prompt))]
    if kinds == {list}:
        return [_checked(ids, model, f"prompt[{at}]") for at, ids in enumerate(cast("list[list[int]]", prompt))]
    raise bad_request("The field 'prompt' mixes texts and token ids; a list holds one kind.", "prompt")


def _encoded(text: str, model: Model, field: str) -> list[int]:
    check_text_size(len(text.encode()), model.engine.context, model.longest_token_bytes, "prompt")
    ids = model.engine.tokenizer.encode(text)
    if not ids:
        raise bad_request(f"The field '{field}' is empty; give a text or token ids.", field)
    return ids


def _checked(ids: list[int], model: Model, field: str) -> list[int]:
    if not ids:
        raise bad_request(f"The field '{field}' is empty; give a text or token ids.", field)
    vocab_size = model.engine.tokenizer.vocab_size
    for token in ids:
        check_token(token, vocab_size, field)
    return ids
