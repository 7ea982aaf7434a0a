"""What the terminal shows when the server is ready."""

from __future__ import annotations

import json

from tfjax.config import ServeConfig
from tfjax.server.model import Model

_ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104


def ready_lines(config: ServeConfig, port: int, model: Model) -> list[str]:
    """Base URL, model name and a curl line that works as it stands."""
    host = _ANY.get(config.host, f"[{config.host}]" if ":" in config.host else config.host)
    base_url = f"http://{host}:{port}/v1"
    key = " -H 'Authorization: Bearer YOUR_KEY'" if config.api_key or config.api_key_file else ""
    asked: dict[str, object]
    if model.templates is not None:
        route, asked = "chat/completions", {"messages": [{"role": "user", "content": "Hello!"}]}
    else:
        route, asked = "completions", {"prompt": "Once upon a time"}
    body = json.dumps({**asked, "max_tokens": 64, "temperature": 0})
    return [
        f"ready: base_url {base_url}",
        f"model: {model.names[0]}",
        f"try:   curl {base_url}/{route} -H 'Content-Type: application/json'{key} -d '{body}'",
    ]
