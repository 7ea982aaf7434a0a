"""The routes, as thin functions from a request to a response."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tfjax.server.chat import plan_chat
from tfjax.server.completions import plan_completion
from tfjax.server.errors import SECURITY_HEADERS, ApiError
from tfjax.server.exchange import Exchange
from tfjax.server.fields import ignored_header
from tfjax.server.formats import ChatFormat, TextFormat
from tfjax.server.model import Model
from tfjax.server.openapi import document
from tfjax.server.plan import Plan
from tfjax.server.record import record_of
from tfjax.server.replies import Capabilities, ModelCard, ModelList
from tfjax.server.reply import Reply
from tfjax.server.service import Service
from tfjax.server.tokens import detokenize, tokenize

BODY_TIMEOUT_S = 60.0
JSON = "application/json"
ROOT_TEXT = "tfjax: an OpenAI-compatible API under /v1; /openapi.json describes all routes, /health says the state.\n"


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, SECURITY_HEADERS | (headers or {}), JSON)


class Routes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def all(self) -> list[Route]:
        return [
            Route("/", self.root, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/health/ready", self.health, methods=["GET"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{id:path}", self.model, methods=["GET"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/capabilities", self.capabilities, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
        ]

    async def root(self, request: Request) -> Response:
        return Response(ROOT_TEXT, 200, SECURITY_HEADERS, "text/plain; charset=utf-8")

    async def health(self, request: Request) -> Response:
        status, body = self._service.health()
        return json_response(body, status)

    async def models(self, request: Request) -> Response:
        model = self._service.ready_model()
        return json_response(ModelList([self._card(name, model) for name in model.names]))

    async def model(self, request: Request) -> Response:
        model = self._service.ready_model()
        name = request.path_params["id"]
        model.checked_name(name)
        return json_response(self._card(name, model))

    async def completions(self, request: Request) -> Exchange:
        model, plan = await self._plan(request, "cmpl-", plan_completion)
        return self._exchange(model, plan, TextFormat(plan, model.speller))

    async def chat(self, request: Request) -> Exchange:
        model, plan = await self._plan(request, "chatcmpl-", plan_chat)
        return self._exchange(model, plan, ChatFormat(plan, model.speller))

    async def tokenize(self, request: Request) -> Response:
        model, body = self._service.ready_model(), await read_body(request)
        reply, ignored = await self._service.workers.run(lambda: tokenize(body, model))
        return json_response(reply, headers=ignored_header(ignored))

    async def detokenize(self, request: Request) -> Response:
        model, body = self._service.ready_model(), await read_body(request)
        reply, ignored = await self._service.workers.run(lambda: detokenize(body, model))
        return json_response(reply, headers=ignored_header(ignored))

    async def capabilities(self, request: Request) -> Response:
        service = self._service
        engine = service.ready_model().engine
        body = Capabilities(engine.capabilities(), service.config.resolved(), service.described())
        return json_response(body)

    async def metrics(self, request: Request) -> Response:
        text = self._service.metrics.text()
        return Response(text, 200, SECURITY_HEADERS, "text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request) -> Response:
        return json_response(document())

    async def _plan(
        self, request: Request, prefix: str, read: Callable[[bytes, Model, str], Plan]
    ) -> tuple[Model, Plan]:
        model = self._service.ready_model()
        body = await read_body(request)
        request_id = prefix + uuid.uuid4().hex
        record = record_of(request.scope)
        record.id = request_id
        plan = await self._service.workers.run(lambda: read(body, model, request_id))
        return model, plan.of_key(record.key)

    def _exchange(self, model: Model, plan: Plan, form: ChatFormat | TextFormat) -> Exchange:
        service = self._service
        service.ready_model()
        reply = Reply(
            plan,
            model.engine,
            service.metrics,
            tick_s=service.ping_s,
            queue_wait_s=service.config.queue_wait_s,
            keep_text=service.config.log_prompts,
        )
        return Exchange(service, reply, form)

    def _card(self, name: str, model: Model) -> ModelCard:
        root = None if name == model.engine.model_id else model.engine.model_id
        return ModelCard(name, self._service.created, model.engine.context, root=root)


async def read_body(request: Request) -> bytes:
    """The body of a JSON request.

    Raises:
        ApiError: 415 for another content type, so that web pages cannot post without a preflight; 408 when too slow.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != JSON:
        raise ApiError(415, f"Content-Type must be {JSON}.", code="unsupported_media_type")
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.body()
    except ClientDisconnect:
        record_of(request.scope).gone = True
        raise ApiError(400, "The body is not complete.", code="invalid_http") from None
    except TimeoutError:
        raise ApiError(408, f"The body did not arrive within {BODY_TIMEOUT_S:g} s.", code="timeout") from None
