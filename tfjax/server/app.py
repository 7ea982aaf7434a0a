"""Puts the layers together."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp

from tfjax.addresses import is_loopback
from tfjax.config import ServeConfig
from tfjax.server.auth import Auth, Keys
from tfjax.server.cors import Cors
from tfjax.server.errors import ApiError, on_api_error, on_exception, on_http_exception
from tfjax.server.hosts import HostAllowList
from tfjax.server.limits import BodyLimit, HeaderLimit, OpenLimit
from tfjax.server.observe import Observe
from tfjax.server.port import EnginePort
from tfjax.server.protocol import MAX_HEADER_BYTES
from tfjax.server.routes import Routes
from tfjax.server.service import Service

MAX_OPEN = 512


def create_app(engine: EnginePort, config: ServeConfig) -> ASGIApp:
    """The application over an engine that is ready."""
    return build_app(Service(config, engine))


def build_app(service: Service) -> ASGIApp:
    """The application over a service that may still be loading.

    A request passes, in this order: the key check (Observe only watches), the Host check, CORS, the limits, the routes.
    """
    config = service.config
    app: ASGIApp = _router(service)
    app = BodyLimit(app, config.max_body_bytes)
    app = HeaderLimit(app, MAX_HEADER_BYTES)
    app = OpenLimit(app, MAX_OPEN)
    app = cors = Cors(app, config.cors_origin)
    if is_loopback(config.host) or config.allowed_host:
        app = HostAllowList(app, (config.host, *config.allowed_host))
    key_file = Path(config.api_key_file) if config.api_key_file else None
    app = Auth(app, Keys(config.api_key, key_file), cors.is_preflight)
    return Observe(app, log_prompts=config.log_prompts)


class _Router(Starlette):
    """Starlette without its outer error layer, which raises again what it has answered."""

    def build_middleware_stack(self) -> ASGIApp:
        return ExceptionMiddleware(self.router, handlers=self.exception_handlers)


def _router(service: Service) -> Starlette:
    handlers = {ApiError: on_api_error, HTTPException: on_http_exception, Exception: on_exception}
    app = _Router(routes=Routes(service).all(), exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app
