"""Chat messages to one text, by the model's own template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfjax.server.errors import bad_request
from tfjax.server.port import TokenizerPort
from tfjax.server.schemas import ChatMessage

if TYPE_CHECKING:
    from tfjax.text.chat_template import ChatTemplate

# Names that a request may set; everything else in a template's scope belongs to the server.
VARIABLES = (
    "enable_thinking",
    "thinking",
    "reasoning_effort",
    "date_string",
    "custom_instructions",
    "tools_in_user_message",
)
MAX_VARIABLE_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Templates:
    """The model's template and its text; the text tells which variables it reads."""

    template: ChatTemplate
    source: str

    @classmethod
    def of(cls, tokenizer: TokenizerPort) -> Templates | None:
        source = tokenizer.chat_template
        if source is None:
            return None
        from tfjax.text.chat_template import ChatTemplate

        return cls(ChatTemplate(source, tokenizer.bos_token, tokenizer.eos_token), source)

    def reads(self, name: str) -> bool:
        return name in self.source

    def render(self, messages: list[ChatMessage], variables: Mapping[str, Any], *, add_generation_prompt: bool) -> str:
        """The prompt's text.

        Raises:
            ApiError: 400 where a message cannot be shown to this model or the template refuses.
        """
        from tfjax.text.chat_template import TemplateError

        plain = [self._plain(message, f"messages[{at}]") for at, message in enumerate(messages)]
        try:
            return self.template.render(plain, add_generation_prompt=add_generation_prompt, variables=variables)
        except TemplateError as error:
            raise bad_request(f"The model's chat template refuses these messages: {error}", "messages") from None

    def _plain(self, message: ChatMessage, field: str) -> dict[str, Any]:
        role = message.role
        if role == "developer" and not self.reads("developer"):
            role = "system"
        plain: dict[str, Any] = {"role": role, "content": _content(message, field)}
        if message.tool_calls:
            if not self.reads("tool_calls"):
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
        ApiError: 400 for a name outside the allow-list or a value that is no short scalar.
    """
    used: dict[str, Any] = {}
    unread = []
    for name, value in given.items():
        field = f"chat_template_kwargs.{name[:64]}"
        if name not in VARIABLES:
            raise bad_request(
                f"The field '{field}' cannot be set; template variables are {', '.join(VARIABLES)}.",
                field,
                "unsupported_value",
            )
        if value is None:
            continue
        if not isinstance(value, str | bool | int | float) or (
            isinstance(value, str) and len(value) > MAX_VARIABLE_CHARS
        ):
            raise bad_request(
                f"The field '{field}' must be a number, true, false or a text of at most {MAX_VARIABLE_CHARS} characters.",
                field,
            )
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
