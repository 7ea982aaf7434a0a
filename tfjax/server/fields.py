"""One table of the fields that clients send and this server does not honour.

A field of the table is accepted with a value that changes nothing, and refused with any other. A field that is neither
here nor in the request's type is unknown: it is ignored, and the reply's X-Tfjax-Ignored header names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import fields as struct_fields

from tfjax.server.errors import bad_request
from tfjax.server.schemas import ChatMessage, StreamOptions

IGNORED_HEADER = "X-Tfjax-Ignored"
_MAX_NAMED = 16


@dataclass(frozen=True, slots=True)
class Rule:
    """When a value is neutral, and what to say otherwise."""

    neutral: Callable[[Any], bool]
    remedy: str


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(type(value) is type(v) and value == v for v in values)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


_never = _one_of()
_off = _one_of(False)
_empty = _one_of([], {})
_GRAMMAR = "This server has no grammars; leave it out."
_TOOLS = "This server calls no tools; leave it out or send the neutral value."
_SAMPLER = "This sampler is not offered; leave it out."

RULES: Mapping[str, Rule] = {
    "tools": Rule(_empty, _TOOLS),
    "functions": Rule(_empty, _TOOLS),
    "tool_choice": Rule(_one_of("none", "auto"), _TOOLS),
    "function_call": Rule(_one_of("none", "auto"), _TOOLS),
    "parallel_tool_calls": Rule(_one_of(True, False), "It is true or false."),
    "response_format": Rule(_one_of({"type": "text"}), 'Only {"type": "text"} is offered.'),
    "guided_json": Rule(_never, _GRAMMAR),
    "guided_regex": Rule(_never, _GRAMMAR),
    "guided_choice": Rule(_never, _GRAMMAR),
    "guided_grammar": Rule(_never, _GRAMMAR),
    "guided_decoding_backend": Rule(_never, _GRAMMAR),
    "structured_outputs": Rule(_empty, _GRAMMAR),
    "grammar": Rule(_one_of(""), _GRAMMAR),
    "json_schema": Rule(_empty, _GRAMMAR),
    "best_of": Rule(_one_of(1), "Use 'n' and choose yourself."),
    "use_beam_search": Rule(_off, _SAMPLER),
    "length_penalty": Rule(_one_of(1, 1.0), _SAMPLER),
    "early_stopping": Rule(_off, _SAMPLER),
    "suffix": Rule(_one_of(""), "Text cannot be filled in before a suffix; leave it out."),
    "echo": Rule(_off, "The prompt is not repeated; leave it out."),
    "prompt_logprobs": Rule(_never, "Only generated tokens have logprobs; leave it out."),
    "audio": Rule(_never, "Replies are text only."),
    "modalities": Rule(_one_of(["text"]), 'Replies are text only: ["text"].'),
    "prediction": Rule(_never, "Drafts come from the server; leave it out."),
    "web_search_options": Rule(_never, "This server searches nothing; leave it out."),
    "verbosity": Rule(_one_of("medium"), "Leave it out."),
    "service_tier": Rule(_one_of("auto", "default"), "There is one tier; leave it out."),
    "priority": Rule(_one_of(0), "Requests are served in order of arrival; leave it out."),
    "thinking_budget": Rule(_never, "Leave it out."),
    "include_stop_str_in_output": Rule(_off, "The stop string is never shown; leave it out."),
    "return_token_ids": Rule(_off, "Token ids are not returned; compare tfjax.token_sha256."),
    "return_tokens_as_token_ids": Rule(_off, "Tokens are returned as text."),
    "skip_special_tokens": Rule(_one_of(True), "Special tokens are never shown; leave it out."),
    "spaces_between_special_tokens": Rule(_one_of(True, False), "It is true or false."),
    "truncate_prompt_tokens": Rule(_never, "Prompts are never cut; shorten it yourself."),
    "allowed_token_ids": Rule(_empty, "Use 'logit_bias'."),
    "bad_words": Rule(_empty, "Use 'logit_bias'."),
    "logits_processors": Rule(_empty, _SAMPLER),
    "repeat_penalty": Rule(_one_of(1, 1.0), "Use 'repetition_penalty'."),
    "n_predict": Rule(_never, "Use 'max_tokens'."),
    "typical_p": Rule(_one_of(1, 1.0), _SAMPLER),
    "top_a": Rule(_one_of(0, 0.0), _SAMPLER),
    "tfs_z": Rule(_one_of(1, 1.0), _SAMPLER),
    "mirostat": Rule(_one_of(0), _SAMPLER),
    "dry_multiplier": Rule(_one_of(0, 0.0), _SAMPLER),
    "xtc_probability": Rule(_one_of(0, 0.0), _SAMPLER),
    "continue_final_message": Rule(_off, "Send the text to /v1/completions."),
    "chat_template": Rule(_never, "The model's own template is used; leave it out."),
    "documents": Rule(_empty, "Put the text into a message."),
    "mm_processor_kwargs": Rule(_empty, "Replies are text only."),
    "kv_transfer_params": Rule(_empty, "Leave it out."),
    "prompt_cache_key": Rule(_text, "It is a string."),
    "safety_identifier": Rule(_text, "It is a string."),
    "store": Rule(_one_of(True, False), "It is true or false."),
    "metadata": Rule(_object, "It is an object."),
    "stream_options.continuous_usage_stats": Rule(_off, "Usage comes in the last chunk; leave it out."),
    "messages.function_call": Rule(_never, _TOOLS),
    "messages.audio": Rule(_never, "This model reads text only."),
}


def check_fields(body: Any, kind: type[Struct]) -> list[str]:
    """The unknown fields of `body`, after refusing (400) what cannot be honoured."""
    if not isinstance(body, dict):
        raise bad_request("The body must be a JSON object.", code="invalid_type")
    unknown = _unknown(body, kind, "")
    if isinstance(options := body.get("stream_options"), dict):
        unknown += _unknown(options, StreamOptions, "stream_options.")
    if isinstance(messages := body.get("messages"), list):
        found = (_unknown(message, ChatMessage, "messages.") for message in messages if isinstance(message, dict))
        unknown += dict.fromkeys(name for names in found for name in names)
    return unknown


@cache
def _names(kind: type[Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in struct_fields(kind))


def _unknown(fields: dict[str, Any], kind: type[Struct], prefix: str) -> list[str]:
    known = _names(kind)
    unknown = []
    for name, value in fields.items():
        if name in known or value is None:
            continue
        path = prefix + name
        rule = RULES.get(path)
        if rule is None:
            unknown.append(path)
        elif not rule.neutral(value):
            text = f"The field '{path}' cannot be honoured with this value. {rule.remedy}"
            raise bad_request(text, path, "unsupported_value")
    return unknown


def ignored_header(names: list[str]) -> dict[str, str]:
    """The header that names ignored fields, safe against header injection and bounded in size."""
    if not names:
        return {}
    shown = [re.sub(r"[^A-Za-z0-9_.-]", "?", name[:64]) or "?" for name in names[:_MAX_NAMED]]
    more = [f"and {len(names) - _MAX_NAMED} more"] if len(names) > _MAX_NAMED else []
    return {IGNORED_HEADER: ", ".join(shown + more)}
