"""What the terminal shows when the server is ready."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.server.byte_tokenizer import ByteTokenizer
from tests.server.conftest import MakeEngine
from tfjax.config import ServeConfig
from tfjax.server.model import model_of
from tfjax.server.ready import ready_lines


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9/v1"),
        ("0.0.0.0", "http://127.0.0.1:9/v1"),
        ("::", "http://[::1]:9/v1"),
        ("::1", "http://[::1]:9/v1"),
    ],
)
def test_the_curl_line_can_be_pasted(make_engine: MakeEngine, host: str, url: str) -> None:
    lines = ready_lines(ServeConfig(host=host, insecure=True), 9, model_of(make_engine(), ("mine",)))
    assert lines[:2] == [f"ready: base_url {url}", "model: mine"]
    words = shlex.split(lines[2].removeprefix("try:"))
    assert words[:2] == ["curl", url + "/chat/completions"]
    assert json.loads(words[-1])["messages"]
    assert json.loads(words[-1])["temperature"] == 0, "the example gives the same text each time"


def test_with_a_key_and_without_a_template(make_engine: MakeEngine) -> None:
    model = model_of(make_engine(tokenizer=ByteTokenizer(None)), ())
    line = ready_lines(ServeConfig(api_key=("k",)), 9, model)[2]
    assert "Authorization: Bearer YOUR_KEY" in line
    assert "/completions " in line
    assert "chat" not in line
