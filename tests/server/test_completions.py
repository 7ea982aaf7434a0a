"""POST /v1/completions."""

from __future__ import annotations

import httpx
import pytest

from tests.server.byte_tokenizer import BOS, ByteTokenizer
from tests.server.conftest import MakeClient, MakeEngine
from tests.server.fake_engine import says
from tests.server.helpers import COMPLETIONS, chunks, error_of


async def test_a_whole_reply_carries_usage_timings_and_proof(client: httpx.AsyncClient) -> None:
    reply = await client.post(COMPLETIONS, json={"model": "fake-1", "prompt": "hi", "seed": 7})
    assert reply.status_code == 200
    body = reply.json()
    assert body["object"] == "text_completion"
    assert body["model"] == "fake-1"
    choice = body["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]) == ("Hello, world! ", "stop", None)
    assert body["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 15,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    timings = body["timings"]
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (0, 2, 15)
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (15, 7)
    block = body["tfjax"]
    assert (block["seed"], block["drafted"], block["accepted"], block["min_rows"]) == (7, 15, 7, 1)
    assert len(block["token_sha256"]) == 64


async def test_a_stream_says_the_same_as_the_whole(client: httpx.AsyncClient) -> None:
    ask = {"prompt": "hi", "seed": 7, "max_tokens": 10, "logprobs": 2}
    whole = (await client.post(COMPLETIONS, json=ask)).json()
    reply = await client.post(COMPLETIONS, json=ask | {"stream": True, "stream_options": {"include_usage": True}})
    parts = chunks(reply)
    content, usage = parts[:-1], parts[-1]
    assert "".join(part["choices"][0]["text"] for part in content) == whole["choices"][0]["text"]
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    assert all(part["usage"] is None for part in content)
    assert [part["choices"][0]["finish_reason"] for part in content] == [None] * (len(content) - 1) + ["length"]
    assert content[-1]["tfjax"]["token_sha256"] == whole["tfjax"]["token_sha256"]
    assert content[-1]["timings"]["predicted_n"] == 10
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        joined = [x for part in content if part["choices"][0]["logprobs"] for x in part["choices"][0]["logprobs"][name]]
        assert joined == whole["choices"][0]["logprobs"][name]


async def test_reused_prompt_tokens_are_told_whole_and_in_a_stream(
    make_client: MakeClient, make_engine: MakeEngine
) -> None:
    engine = make_engine()
    engine.cached = 3
    client = make_client(engine)
    ask = {"prompt": "hello", "max_tokens": 2, "n": 2}
    whole = (await client.post(COMPLETIONS, json=ask)).json()
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert (whole["timings"]["cache_n"], whole["timings"]["prompt_n"]) == (6, 4)
    reply = await client.post(COMPLETIONS, json=ask | {"stream": True, "stream_options": {"include_usage": True}})
    assert chunks(reply)[-1]["usage"] == whole["usage"]


async def test_prompts_are_shared_within_one_key_and_salt(make_client: MakeClient, make_engine: MakeEngine) -> None:
    engine = make_engine()
    client = make_client(engine, api_key=("sk-one", "sk-two"))
    for key in ("sk-one", "sk-two"):
        for salt in ({}, {"cache_salt": None}, {"cache_salt": "a"}):
            ask = {"prompt": "hi", "max_tokens": 1} | salt
            assert (await client.post(COMPLETIONS, json=ask, headers={"x-api-key": key})).status_code == 200
    salts = [generation.cache_salt for generation in engine.submitted]
    assert [salts[0] == salts[1], len(set(salts))] == [True, 4]


@pytest.mark.parametrize("salt", ["", 1, True, [], {}, "x" * 1025])
async def test_a_salt_is_a_short_text(client: httpx.AsyncClient, salt: object) -> None:
    reply = await client.post(COMPLETIONS, json={"prompt": "hi", "cache_salt": salt})
    assert reply.status_code == 400
    assert error_of(reply)["param"] == "cache_salt"


async def test_a_stream_without_include_usage_has_no_usage(client: httpx.AsyncClient) -> None:
    parts = chunks(await client.post(COMPLETIONS, json={"prompt": "hi", "stream": True, "max_tokens": 2}))
    assert all("usage" not in part for part in parts)
    assert "tfjax" in parts[-1]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("hi", [(104, 105)]),
        ([104, 105], [(104, 105)]),
        (["hi", "yo!"], [(104, 105), (121, 111, 33)]),
        ([[104], [105, 106]], [(104,), (105, 106)]),
    ],
)
async def test_four_kinds_of_prompt(
    make_client: MakeClient, make_engine: MakeEngine, prompt: object, expected: list[tuple[int, ...]]
) -> None:
    engine = make_engine()
    reply = await make_client(engine).post(COMPLETIONS, json={"prompt": prompt, "max_tokens": 2})
    assert reply.status_code == 200
    assert [generation.prompt for generation in engine.submitted] == expected
    assert [choice["index"] for choice in reply.json()["choices"]] == list(range(len(expected)))


async def test_choices_get_seeds_that_count_up_for_each_prompt(
    make_client: MakeClient, make_engine: MakeEngine
) -> None:
    engine = make_engine()
    ask = {"prompt": ["a", "b"], "n": 2, "seed": 41, "max_tokens": 2}
    body = (await make_client(engine).post(COMPLETIONS, json=ask)).json()
    assert [generation.sampling.seed for generation in engine.submitted] == [41, 42, 41, 42]
    assert [generation.prompt for generation in engine.submitted] == [(97,), (97,), (98,), (98,)]
    assert [choice["tfjax"]["seed"] for choice in body["choices"]] == [41, 42, 41, 42]
    assert "tfjax" not in body
    assert body["usage"]["prompt_tokens"] == 2
    assert body["usage"]["completion_tokens"] == 8


async def test_seeds_of_further_choices_can_be_sent_back(client: httpx.AsyncClient) -> None:
    ask = {"prompt": "hi", "n": 3, "seed": 2**63 - 2, "max_tokens": 1}
    choices = (await client.post(COMPLETIONS, json=ask)).json()["choices"]
    assert [choice["tfjax"]["seed"] for choice in choices] == [2**63 - 2, 2**63 - 1, 0]
    for choice in choices:
        reply = await client.post(COMPLETIONS, json={"prompt": "hi", "seed": choice["tfjax"]["seed"], "max_tokens": 1})
        assert reply.status_code == 200


class CountingTokenizer(ByteTokenizer):
    encoded = 0

    def encode(self, text: str, *, add_bos: bool | None = None, parse_special: bool = True) -> list[int]:
        self.encoded += 1
        return super().encode(text, add_bos=add_bos, parse_special=parse_special)


@pytest.mark.parametrize("prompt", [["a"] * 33, [[97]] * 33])
async def test_too_many_choices_are_refused_before_any_prompt_is_read(
    make_client: MakeClient, make_engine: MakeEngine, prompt: object
) -> None:
    tokenizer = CountingTokenizer()
    client = make_client(make_engine(tokenizer=tokenizer, parallel=64))
    tokenizer.encoded = 0
    error = error_of(await client.post(COMPLETIONS, json={"prompt": prompt, "n": 2}))
    assert error["param"] == "prompt"
    assert "33 prompts with n=2 are 66 choices; one request may ask for 64" in error["message"]
    assert tokenizer.encoded == 0
    ask = {"prompt": [97] * 65, "n": 2, "max_tokens": 1}
    assert (await client.post(COMPLETIONS, json=ask)).status_code == 200


async def test_without_a_seed_a_fresh_one_is_drawn_and_reported(client: httpx.AsyncClient) -> None:
    ask = {"prompt": "hi", "max_tokens": 1}
    seeds = {(await client.post(COMPLETIONS, json=ask)).json()["tfjax"]["seed"] for _ in range(3)}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**53 for seed in seeds)


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ("", "prompt"),
        ([], "prompt"),
        ([""], "prompt[0]"),
        (["a", ""], "prompt[1]"),
        ([[]], "prompt[0]"),
        (["a", 1], "prompt"),
    ],
)
async def test_empty_and_mixed_prompts_are_refused_and_the_next_request_works(
    client: httpx.AsyncClient, prompt: object, param: str
) -> None:
    reply = await client.post(COMPLETIONS, json={"prompt": prompt})
    assert reply.status_code == 400
    assert error_of(reply)["param"] == param
    assert (await client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1})).status_code == 200


async def test_an_empty_prompt_starts_from_bos_where_the_model_has_that_habit(
    make_client: MakeClient, make_engine: MakeEngine
) -> None:
    engine = make_engine(tokenizer=ByteTokenizer(None, add_bos=True))
    reply = await make_client(engine).post(COMPLETIONS, json={"prompt": "", "max_tokens": 1})
    assert reply.status_code == 200
    assert engine.submitted[0].prompt == (BOS,)


@pytest.mark.parametrize("prompt", [[260], [[1], [2, 260]], [2**31 - 1]])
async def test_token_ids_outside_the_vocabulary(client: httpx.AsyncClient, prompt: object) -> None:
    reply = await client.post(COMPLETIONS, json={"prompt": prompt})
    assert reply.status_code == 400
    assert error_of(reply)["param"].startswith("prompt")
    assert "259" in error_of(reply)["message"]


async def test_omitted_max_tokens_is_what_fits(make_client: MakeClient, make_engine: MakeEngine) -> None:
    engine = make_engine(says("x", end=None), context=20)
    body = (await make_client(engine).post(COMPLETIONS, json={"prompt": "12345"})).json()
    assert engine.submitted[0].max_tokens == 15
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["total_tokens"] == 20


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [
        ("12345", 16, "However, you requested 21 tokens (5 in the prompt, 16 in the completion)."),
        ("x" * 20, None, "However, your prompt resulted in 20 tokens"),
        ("x" * 5000, None, "However, your prompt resulted in at least "),
    ],
)
async def test_what_does_not_fit_is_refused_in_openais_words(
    make_client: MakeClient, make_engine: MakeEngine, prompt: str, max_tokens: int | None, message: str
) -> None:
    client = make_client(make_engine(context=20))
    reply = await client.post(COMPLETIONS, json={"prompt": prompt, "max_tokens": max_tokens})
    assert reply.status_code == 400
    error = error_of(reply)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("This server's maximum context length is 20 tokens. ")
    assert message in error["message"]


async def test_a_prompt_that_fills_the_context_but_for_one_token(
    make_client: MakeClient, make_engine: MakeEngine
) -> None:
    client = make_client(make_engine(context=20))
    body = (await client.post(COMPLETIONS, json={"prompt": "x" * 19, "max_tokens": 1})).json()
    assert body["usage"]["total_tokens"] == 20


async def test_another_models_name_is_404(make_client: MakeClient) -> None:
    client = make_client(alias=("mine", "too"))
    reply = await client.post(COMPLETIONS, json={"model": "gpt-4", "prompt": "hi"})
    assert reply.status_code == 404
    assert (error_of(reply)["code"], error_of(reply)["param"]) == ("model_not_found", "model")
    for name in ("mine", "too", "fake-1", None):
        body = (await client.post(COMPLETIONS, json={"model": name, "prompt": "hi", "max_tokens": 1})).json()
        assert body["model"] == "mine"


async def test_min_tokens_beyond_max_tokens(client: httpx.AsyncClient) -> None:
    reply = await client.post(COMPLETIONS, json={"prompt": "hi", "min_tokens": 5, "max_tokens": 4})
    assert error_of(reply)["param"] == "min_tokens"


async def test_too_many_choices(client: httpx.AsyncClient) -> None:
    reply = await client.post(COMPLETIONS, json={"prompt": ["a"] * 9, "n": 16})
    assert reply.status_code == 400
    assert error_of(reply)["param"] == "prompt"


async def test_every_field_reaches_the_engine(make_client: MakeClient, make_engine: MakeEngine) -> None:
    engine = make_engine()
    ask = {
        "prompt": "hi",
        "max_tokens": 9,
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.25,
        "min_p": 0.125,
        "seed": 5,
        "presence_penalty": 1.5,
        "frequency_penalty": -1.5,
        "repetition_penalty": 1.25,
        "logit_bias": {"7": 2, "3": -100},
        "min_tokens": 2,
        "logprobs": 4,
        "stop": ["a", "bc"],
        "stop_token_ids": [9],
        "ignore_eos": True,
        "draft": False,
    }
    assert (await make_client(engine).post(COMPLETIONS, json=ask)).status_code == 200
    made = engine.submitted[0]
    sampling = made.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.5, 3, 0.25, 0.125)
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (1.5, -1.5, 1.25)
    assert sampling.logit_bias == ((3, -100.0), (7, 2.0))
    assert (sampling.seed, sampling.min_tokens, sampling.logprobs) == (5, 2, 4)
    assert (made.max_tokens, made.stop, made.stop_token_ids) == (9, ("a", "bc"), (9,))
    assert (made.ignore_eos, made.draft) == (True, False)


async def test_defaults_come_from_the_models_generation_config(
    make_client: MakeClient, make_engine: MakeEngine
) -> None:
    engine = make_engine(generation_config={"temperature": 0.25, "top_p": 0.5, "top_k": 7, "min_p": "bad", "eos": 1})
    client = make_client(engine)
    await client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1})
    await client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1, "temperature": 0, "top_p": 1, "top_k": 0})
    first, second = (generation.sampling for generation in engine.submitted)
    assert (first.temperature, first.top_p, first.top_k, first.min_p) == (0.25, 0.5, 7, 0.0)
    assert (second.temperature, second.top_p, second.top_k) == (0.0, 1.0, 0)


@pytest.mark.parametrize(
    "bias", [{"x": 1}, {"-1": 1}, {"260": 1}, {"1.0": 1}, {"٣": 1}, {"1": 1, "01": 2}, {"9" * 40: 1}]
)
async def test_bad_logit_bias_keys(client: httpx.AsyncClient, bias: dict[str, int]) -> None:
    reply = await client.post(COMPLETIONS, json={"prompt": "hi", "logit_bias": bias})
    assert reply.status_code == 400
    assert error_of(reply)["param"] == "logit_bias"


async def test_stream_options_need_a_stream(client: httpx.AsyncClient) -> None:
    reply = await client.post(COMPLETIONS, json={"prompt": "hi", "stream_options": {"include_usage": True}})
    assert error_of(reply)["param"] == "stream_options"


async def test_logprobs_zero_has_no_alternatives(client: httpx.AsyncClient) -> None:
    body = (await client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 3, "logprobs": 0})).json()
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["H", "e", "l"]
    assert logprobs["top_logprobs"] is None
