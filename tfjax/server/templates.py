"""Chat messages to one text, by the model's own template."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfjax.server.errors import ApiError, bad_request
from tfjax.server.port import TokenizerPort
from tfjax.server.schemas import ChatMessage
from tfjax.text.chat_template import RESERVED, ChatTemplate, TemplateError

log = logging.getLogger("tfjax.server")

MAX_VARIABLE_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Templates:
    """The model's template and its text; the text tells what else of a message it shows."""

    template: ChatTemplate
    source: str

    @classmethod
    def of(cls, tokenizer: TokenizerPort) -> Templates | None:
        """The model's template, or None, with a warning where it has one that does not work."""
        source = tokenizer.chat_template
        if source is None:
            return None
        try:
            return cls(ChatTemplate(source, tokenizer.bos_token, tokenizer.eos_token), source)
        except TemplateError as error:
            log.warning("the model has no usable chat template: %s", error)
            return None

    def reads(self, variable: str) -> bool:
        return variable in self.template.variables

    def render(self, messages: list[ChatMessage], variables: Mapping[str, Any], *, add_generation_prompt: bool) -> str:
        """The prompt's text.

        Raises:
            ApiError: 400 where a message cannot be shown to this model or the template refuses it, 500 where it fails.
        """
        plain = [self._plain(message, f"messages[{at}]") for at, message in enumerate(messages)]
        try:
            return self.template.render(plain, add_generation_prompt=add_generation_prompt, variables=variables)
        except TemplateError as error:
            if error.refused:
                raise bad_request(f"These messages cannot be used: {error}.", "messages", "template_refused") from None
            log.error("%s", error)
            raise ApiError(500, f"The prompt cannot be made: {error}.", "server_error", code="template_error") from None

    def _plain(self, message: ChatMessage, field: str) -> dict[str, Any]:
        role = message.role
        if role == "developer" and "developer" not in self.source:
            role = "system"
        plain: dict[str, Any] = {"role": role, "content": _content(message, field)}
        if message.tool_calls:
            if "tool_calls" not in self.source:
                raise bad_request(
                    f"The field '{field}.tool_calls' cannot be honoured: the model's template shows no tool calls.",
                    f"{field}.tool_calls",
                    "unsupported_value",
                )
            plain["tool_calls"] = message.tool_calls
        if message.name is not None:
            plain["name"] = message.name
        if message.tool_call_id is not None:
            plain["tool_call_id"] = message.tool_call_id
        return plain


def checked_variables(given: Mapping[str, Any], templates: Templates) -> tuple[dict[str, Any], list[str]]:
    """Template variables that the template reads, and the names of those that it does not.

    Raises:
        ApiError: 400 for a reserved name or a value that is no short scalar.
    """
    used: dict[str, Any] = {}
    unread = []
    for name, value in given.items():
        field = f"chat_template_kwargs.{name[:64]}"
        if name in RESERVED:
            raise bad_request(f"The field '{field}' belongs to the server; leave it out.", field, "unsupported_value")
        if value is None:
            continue
        if not isinstance(value, str | bool | int | float) or len(str(value)) > MAX_VARIABLE_CHARS:
            limit = f"a number, true, false or a text of at most {MAX_VARIABLE_CHARS} characters"
            raise bad_request(f"The field '{field}' must be {limit}.", field, "invalid_value")
        if templates.reads(name):
            used[name] = value
        else:
            unread.append(field)
    return used, unread


def _content(message: ChatMessage, field: str) -> str:
    content = message.content
    if content is None:
        if message.role == "assistant":
            return ""
        raise bad_request(f"The field '{field}.content' is null; give a text.", f"{field}.content", "invalid_value")
    if isinstance(content, str):
        return content
    texts = []
    for at, part in enumerate(content):
        where = f"{field}.content[{at}]"
        if part.type != "text":
            raise bad_request(
                f"The field '{where}' is of type '{part.type}'; this model reads text only.", where, "unsupported_value"
            )
        if part.text is None:
            raise bad_request(f"The field '{where}.text' is required.", f"{where}.text", "missing_field")
        texts.append(part.text)
    return "".join(texts)
