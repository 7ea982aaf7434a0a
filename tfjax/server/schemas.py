"""Request bodies, with their bounds in the types. `None` in a field means its default, as `null` does on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

MAX_CHOICES = 16
MAX_MESSAGES = 4096
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_TOP_LOGPROBS = 20
MAX_BIAS = 1024
MAX_TEMPERATURE = 100.0
MAX_SEED = 2**63 - 1
MAX_COUNT = 2**31 - 1

Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
CountOrZero = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
TokenId = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Seed = Annotated[int, Meta(ge=0, le=MAX_SEED)]
Temperature = Annotated[float, Meta(ge=0.0, le=MAX_TEMPERATURE)]
TopP = Annotated[float, Meta(ge=0.0, le=1.0)]
MinP = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
RepetitionPenalty = Annotated[float, Meta(gt=0.0, le=100.0)]
Alternatives = Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)]
Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
Bias = Annotated[float, Meta(ge=-100.0, le=100.0)]
ModelName = Annotated[str, Meta(max_length=1024)]
Label = Annotated[str, Meta(max_length=1024)]
Salt = Annotated[str, Meta(min_length=1, max_length=1024)]


class StreamOptions(Struct, kw_only=True):
    include_usage: bool | None = None


class SamplingFields(Struct, kw_only=True):
    """Fields that both kinds of request share."""

    model: ModelName | None = None
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_k: CountOrZero | None = None
    top_p: TopP | None = None
    min_p: MinP | None = None
    seed: Seed | None = None
    n: Choices | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=64)] | None = None
    ignore_eos: bool | None = None
    min_tokens: CountOrZero | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=MAX_BIAS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    draft: bool | None = None
    cache_salt: Salt | None = None
    user: Label | None = None


class CompletionRequest(SamplingFields, kw_only=True):
    """POST /v1/completions. `prompt` is one text, token ids, or a list of either."""

    prompt: str | list[str | TokenId | list[TokenId]]
    logprobs: Alternatives | None = None


class ContentPart(Struct, kw_only=True):
    type: Annotated[str, Meta(max_length=64)]
    text: str | None = None


class ChatMessage(Struct, kw_only=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[ContentPart], Meta(min_length=1, max_length=MAX_MESSAGES)] | None = None
    name: Label | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: Label | None = None


class ChatRequest(SamplingFields, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Annotated[str, Meta(max_length=32)] | None = None


class TokenizeRequest(Struct, kw_only=True):
    """POST /tokenize, in vLLM's shape: either `prompt` or `messages`. `content` is llama.cpp's name of `prompt`."""

    model: ModelName | None = None
    prompt: str | None = None
    content: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    return_token_strs: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(Struct, kw_only=True):
    """POST /detokenize."""

    tokens: Annotated[list[TokenId], Meta(max_length=4_194_304)]
    model: ModelName | None = None
