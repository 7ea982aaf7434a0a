"""What the server answers, as types; the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

FinishReason = Literal["stop", "length"]


class ErrorDetail(Struct):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(Struct):
    error: ErrorDetail


class PromptDetails(Struct):
    cached_tokens: int = 0


class CompletionDetails(Struct):
    reasoning_tokens: int = 0


class Usage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Timings(Struct):
    """llama.cpp's names. `prompt_n` counts the tokens that were computed, `cache_n` those that were not."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int


class TfjaxBlock(Struct):
    """Proof and speed of one choice. `token_sha256` is the same with and without drafts.

    `drafted_per_position` and `accepted_per_position` count drafts by their place in a round, first draft first;
    `drafted_rounds` are the rounds that checked a draft. In `stood_aside_rounds` the small model was not asked, for its
    drafts did not pay; `probes` counts new tries.
    """

    token_sha256: str
    seed: int
    rounds: int
    drafted: int
    accepted: int
    drafted_per_position: list[int]
    accepted_per_position: list[int]
    drafted_rounds: int
    min_rows: int
    stood_aside_rounds: int
    probes: int
    ttft_ms: float
    decode_tps: float


class TopLogprob(Struct):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprobs(Struct):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct):
    content: list[TokenLogprobs]
    refusal: None = None


class TextLogprobs(Struct):
    """The older shape of /v1/completions; `text_offset` counts characters of this choice's text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class Message(Struct):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class Delta(Struct):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChoice(Struct):
    index: int
    message: Message
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = None
    tfjax: TfjaxBlock | UnsetType = UNSET


class ChatReply(Struct):
    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    timings: Timings
    object: Literal["chat.completion"] = "chat.completion"
    tfjax: TfjaxBlock | UnsetType = UNSET


class ChatChunkChoice(Struct):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None


class ChatChunk(Struct):
    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: Usage | UnsetType | None = UNSET
    timings: Timings | UnsetType = UNSET
    tfjax: TfjaxBlock | UnsetType = UNSET


class TextChoice(Struct):
    index: int
    text: str
    finish_reason: FinishReason | None
    logprobs: TextLogprobs | None = None
    tfjax: TfjaxBlock | UnsetType = UNSET


class TextReply(Struct):
    """A whole reply of /v1/completions, and also a chunk of its stream."""

    id: str
    created: int
    model: str
    choices: list[TextChoice]
    object: Literal["text_completion"] = "text_completion"
    usage: Usage | UnsetType | None = UNSET
    timings: Timings | UnsetType = UNSET
    tfjax: TfjaxBlock | UnsetType = UNSET


class ModelCard(Struct):
    id: str
    created: int
    max_model_len: int
    object: Literal["model"] = "model"
    owned_by: str = "tfjax"
    root: str | None = None


class ModelList(Struct):
    data: list[ModelCard]
    object: Literal["list"] = "list"


class TokenizeReply(Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeReply(Struct):
    prompt: str


class Health(Struct):
    """`status` is ok, loading, draining or failed; `fraction` says how far the phase is.

    `drafter` is the small model that drafts; null where there is none, and `drafter_reason` then says why.
    """

    status: str
    phase: str
    fraction: float
    running: int = 0
    waiting: int = 0
    reason: str | None = None
    drafter: str | None = None
    drafter_reason: str | None = None


class Capabilities(Struct):
    engine: dict[str, Any]
    config: dict[str, Any]
    server: dict[str, Any]
