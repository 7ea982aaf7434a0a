"""GET /openapi.json, made from the request and reply types."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from msgspec import Struct

from tfjax.server import replies, schemas
from tfjax.server.fields import RULES

ERRORS = {
    "400": "A field does not fit or cannot be honoured; `param` names it.",
    "401": "No key, or a wrong one.",
    "403": "The Host header is not allowed.",
    "404": "No such route or model.",
    "408": "The body did not arrive in time.",
    "413": "The body is too long.",
    "415": "The body is not application/json.",
    "500": "The server failed; its log says why.",
    "503": "Loading, stopping, or too many requests; try again after `Retry-After`.",
}
PLAIN = ("/", "/metrics")
GENERATING = ("/v1/completions", "/v1/chat/completions")

# route, method, request, reply, summary
OPERATIONS: tuple[tuple[str, str, type[Struct] | None, type[Struct] | None, str], ...] = (
    ("/", "get", None, None, "One line that says where the routes are described."),
    ("/health", "get", None, replies.Health, "Whether requests are served."),
    ("/health/ready", "get", None, replies.Health, "The same, under the name that orchestrators use."),
    ("/v1/models", "get", None, replies.ModelList, "The names of the served model."),
    ("/v1/models/{id}", "get", None, replies.ModelCard, "One name of the served model."),
    ("/v1/completions", "post", schemas.CompletionRequest, replies.TextReply, "Continues a text."),
    ("/v1/chat/completions", "post", schemas.ChatRequest, replies.ChatReply, "Answers a conversation."),
    ("/tokenize", "post", schemas.TokenizeRequest, replies.TokenizeReply, "Token ids of a text or of messages."),
    ("/detokenize", "post", schemas.DetokenizeRequest, replies.DetokenizeReply, "The text of token ids."),
    ("/capabilities", "get", None, replies.Capabilities, "The engine, and the resolved configuration."),
    ("/metrics", "get", None, None, "Counters for Prometheus."),
    ("/openapi.json", "get", None, None, "This document."),
)


@cache
def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    kinds = [kind for op in OPERATIONS for kind in op[2:4] if isinstance(kind, type)]
    kinds += [replies.ErrorBody, replies.ChatChunk]
    _, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for route, method, request, reply, summary in OPERATIONS:
        paths.setdefault(route, {})[method] = _operation(route, method, request, reply, summary)
    return {
        "openapi": "3.1.0",
        "info": {"title": "tfjax", "version": _version(), "description": _description()},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"key": []}],
    }


def _operation(
    route: str, method: str, request: type[Struct] | None, reply: type[Struct] | None, summary: str
) -> dict[str, Any]:
    responses: dict[str, Any] = {
        status: {"description": text, "content": _json(replies.ErrorBody)} for status, text in ERRORS.items()
    }
    responses["200"] = {"description": summary, "content": _content(route, reply)}
    if reply is replies.Health:
        responses["503"] = {"description": "Not serving; `phase` and `reason` say why.", "content": _json(reply)}
    operation: dict[str, Any] = {"operationId": f"{method}{route}", "summary": summary, "responses": responses}
    if "{id}" in route:
        operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    if request is not None:
        operation["requestBody"] = {"required": True, "content": _json(request)}
    return operation


def _content(route: str, reply: type[Struct] | None) -> dict[str, Any]:
    if reply is None:
        return {"text/plain": {}} if route in PLAIN else {"application/json": {"schema": {"type": "object"}}}
    content = _json(reply)
    if route in GENERATING:
        content["text/event-stream"] = {"schema": _event("ChatChunk" if reply is replies.ChatReply else "TextReply")}
    return content


def _event(chunk: str) -> dict[str, Any]:
    data = {"type": "string", "description": f"A {chunk} or an ErrorBody as JSON, or [DONE]."}
    return {"type": "object", "properties": {"data": data}, "required": ["data"]}


def _json(kind: type[Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}


def _version() -> str:
    try:
        return version("tfjax")
    except PackageNotFoundError:
        return "0"


def _description() -> str:
    refused = ", ".join(f"`{name}`" for name in sorted(RULES))
    return (
        "OpenAI's routes, with proof in each reply: `tfjax.token_sha256` is the same with `draft` true and false. "
        "A `null` field means its default. Unknown fields are ignored and named in the X-Tfjax-Ignored header. "
        f"Accepted only with a value that changes nothing: {refused}."
    )
