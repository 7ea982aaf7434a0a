"""POST /v1/chat/completions: messages in, a message out."""

from __future__ import annotations

from typing import Any

from tfjax.server.errors import bad_request
from tfjax.server.fields import check_fields
from tfjax.server.generation import check_text_size, generations_of, sampling_of
from tfjax.server.jsonbody import convert, parse
from tfjax.server.model import Model, check_stream_options, new_plan
from tfjax.server.plan import Plan
from tfjax.server.schemas import ChatMessage, ChatRequest
from tfjax.server.templates import Templates, checked_variables


def plan_chat(body: bytes, model: Model, id: str) -> Plan:
    """Reads and checks a request; runs on a worker thread.

    Raises:
        ApiError: 400 or 404 with the field's name.
    """
    raw = parse(body)
    ignored = check_fields(raw, ChatRequest)
    request = convert(raw, ChatRequest)
    name = model.checked_name(request.model)
    check_stream_options(request)
    logprobs = _logprobs(request)
    templates = chat_templates(model)
    variables, unread = _variables(request, templates)
    max_tokens, max_tokens_field = _max_tokens(request)
    sampling = sampling_of(request, model.engine, model.defaults, logprobs)
    add = request.add_generation_prompt is not False
    prompt = prompt_of(request.messages, model, templates, variables, add_generation_prompt=add)
    generations = generations_of(
        id,
        [prompt],
        request,
        model.engine,
        sampling,
        max_tokens=max_tokens,
        max_tokens_field=max_tokens_field,
        prompt_field="messages",
    )
    return new_plan(id, name, request, generations, len(prompt), logprobs is not None, ignored + unread)


def chat_templates(model: Model) -> Templates:
    """
    Raises:
        ApiError: 400 when the model has no chat template.
    """
    if model.templates is None:
        raise bad_request(
            "This model has no chat template; use /v1/completions, or serve a model that was made for chat.",
            "messages",
            "no_chat_template",
        )
    return model.templates


def prompt_of(
    messages: list[ChatMessage],
    model: Model,
    templates: Templates,
    variables: dict[str, Any],
    *,
    add_generation_prompt: bool,
) -> list[int]:
    """Token ids of a conversation. The template writes BOS itself where the model wants it."""
    text = templates.render(messages, variables, add_generation_prompt=add_generation_prompt)
    check_text_size(len(text.encode()), model.engine.context, model.longest_token_bytes, "messages")
    ids = model.engine.tokenizer.encode(text, add_bos=False)
    if not ids:
        raise bad_request("The messages give an empty prompt; say something.", "messages")
    return ids


def _variables(request: ChatRequest, templates: Templates) -> tuple[dict[str, Any], list[str]]:
    variables, unread = checked_variables(request.chat_template_kwargs or {}, templates)
    effort = request.reasoning_effort
    if effort is not None:
        if templates.reads("reasoning_effort"):
            variables["reasoning_effort"] = effort
        elif effort != "none":
            raise bad_request(
                "The field 'reasoning_effort' cannot be honoured: this model does not reason apart. Leave it out.",
                "reasoning_effort",
                "unsupported_value",
            )
    return variables, unread


def _logprobs(request: ChatRequest) -> int | None:
    if request.logprobs:
        return request.top_logprobs or 0
    if request.top_logprobs:
        raise bad_request("'top_logprobs' needs 'logprobs': true.", "top_logprobs")
    return None


def _max_tokens(request: ChatRequest) -> tuple[int | None, str]:
    old, new = request.max_tokens, request.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise bad_request(
            f"'max_tokens' is {old} and 'max_completion_tokens' is {new}; give one.", "max_completion_tokens"
        )
    return (new, "max_completion_tokens") if new is not None else (old, "max_tokens")
