"""Errors in OpenAI's shape. What a client reads is written by the code that refuses; outside texts go to the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tfjax.server.replies import ErrorBody, ErrorDetail

log = logging.getLogger("tfjax.server")

RETRY_AFTER_S = 1
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(slots=True)
class ApiError(Exception):
    """A refusal that the client reads as it stands."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after_s: int | None = None

    def __str__(self) -> str:
        return self.message


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unavailable(message: str, code: str = "unavailable", retry_after_s: int = RETRY_AFTER_S) -> ApiError:
    return ApiError(503, message, type="server_error", code=code, retry_after_s=retry_after_s)


def internal() -> ApiError:
    return ApiError(
        500, "The server failed on this request; its log says why.", type="server_error", code="internal_error"
    )


def body_of(error: ApiError) -> bytes:
    return msgspec.json.encode(ErrorBody(ErrorDetail(error.message, error.type, error.param, error.code)))


def headers_of(error: ApiError) -> dict[str, str]:
    headers = dict(SECURITY_HEADERS)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    return headers


def response_of(error: ApiError) -> Response:
    return Response(body_of(error), error.status, headers_of(error), "application/json")


async def on_api_error(request: Request, raised: Exception) -> Response:
    return response_of(cast("ApiError", raised))


async def on_http_exception(request: Request, raised: Exception) -> Response:
    """Starlette's own 404 and 405."""
    error = cast("HTTPException", raised)
    if error.status_code == 404:
        text, code = f"No such route: {request.method} {request.url.path[:200]}. See /openapi.json.", "not_found"
    elif error.status_code == 405:
        text, code = f"{request.method} is not allowed here; see /openapi.json.", "method_not_allowed"
    else:
        text, code = "The request could not be handled.", None
    response = response_of(ApiError(error.status_code, text, code=code))
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def on_exception(request: Request, raised: Exception) -> Response:
    log.error("request failed: %s %s", request.method, request.url.path, exc_info=raised)
    return response_of(internal())
