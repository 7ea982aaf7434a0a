"""POST /tokenize and /detokenize."""

from __future__ import annotations

import httpx
import pytest

from tests.server.byte_tokenizer import BOS, IM_START, ByteTokenizer
from tests.server.conftest import MakeClient, MakeEngine
from tests.server.helpers import error_of


async def test_a_prompt(client: httpx.AsyncClient) -> None:
    reply = await client.post("/tokenize", json={"prompt": "é<|im_start|>", "return_token_strs": True})
    expected = [0xC3, 0xA9, IM_START]
    strings = ["\ufffd", "\ufffd", "<|im_start|>"]
    assert reply.json() == {"count": 3, "max_model_len": 4096, "tokens": expected, "token_strs": strings}


async def test_special_tokens_follow_the_model_and_the_field(make_client: MakeClient, make_engine: MakeEngine) -> None:
    client = make_client(make_engine(tokenizer=ByteTokenizer(add_bos=True)))
    assert (await client.post("/tokenize", json={"prompt": "a"})).json()["tokens"] == [BOS, 97]
    ask = {"prompt": "a", "add_special_tokens": False}
    assert (await client.post("/tokenize", json=ask)).json()["tokens"] == [97]
    assert (await client.post("/tokenize", json={"prompt": ""})).json()["tokens"] == [BOS]


async def test_messages(client: httpx.AsyncClient) -> None:
    ask = {"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": False}
    tokens = (await client.post("/tokenize", json=ask)).json()["tokens"]
    assert tokens == ByteTokenizer().encode("<|im_start|>user\na<|im_end|>\n")


async def test_content_is_the_prompt(client: httpx.AsyncClient) -> None:
    for text in ("é<|im_start|>", ""):
        replies = [await client.post("/tokenize", json={name: text}) for name in ("prompt", "content")]
        assert replies[0].status_code == 200
        assert replies[0].json() == replies[1].json()
        assert "X-Tfjax-Ignored" not in replies[1].headers


async def test_both_or_neither(client: httpx.AsyncClient) -> None:
    messages = [{"role": "user", "content": "a"}]
    for ask in (
        {},
        {"prompt": "a", "messages": messages},
        {"content": "a", "messages": messages},
        {"prompt": "a", "content": "a"},
    ):
        assert error_of(await client.post("/tokenize", json=ask))["param"] == "prompt"


async def test_back_again(client: httpx.AsyncClient) -> None:
    reply = await client.post("/detokenize", json={"tokens": [0xC3, 0xA9, 104]})
    assert reply.json() == {"prompt": "éh"}
    assert (await client.post("/detokenize", json={"tokens": []})).json() == {"prompt": ""}
    reply = await client.post("/detokenize", json={"tokens": [260]})
    assert (reply.status_code, error_of(reply)["param"]) == (400, "tokens")


class OneTokenTokenizer(ByteTokenizer):
    """Makes one token of any text, at no cost."""

    def encode(self, text: str, *, add_bos: bool | None = None, parse_special: bool = True) -> list[int]:
        return [97]


@pytest.mark.parametrize(("context", "most"), [(10, 65536), (4096, 65536), (5000, 80000)])
async def test_what_is_far_longer_than_the_context_is_refused(
    make_client: MakeClient, make_engine: MakeEngine, context: int, most: int
) -> None:
    client = make_client(make_engine(context=context, tokenizer=OneTokenTokenizer()))
    frame = len("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n")

    def asks(length: int) -> list[tuple[str, str, object]]:
        messages = [{"role": "user", "content": "x" * (length - frame)}]
        return [
            ("/tokenize", "prompt", "x" * length),
            ("/tokenize", "content", "x" * length),
            ("/tokenize", "messages", messages),
            ("/detokenize", "tokens", [97] * length),
        ]

    for route, field, value in asks(most):
        assert (await client.post(route, json={field: value})).status_code == 200, field
    for route, field, value in asks(most + 1):
        error = error_of(await client.post(route, json={field: value}))
        assert (error["param"], error["code"]) == (field, "too_long")
        assert f"{most + 1} " in error["message"]
        assert f" may have {most}. Split it" in error["message"]


async def test_another_model_is_404(client: httpx.AsyncClient) -> None:
    for route, ask in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": []})):
        reply = await client.post(route, json=ask | {"model": "other"})
        assert (reply.status_code, error_of(reply)["code"]) == (404, "model_not_found")
