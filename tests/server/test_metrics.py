"""Counts are true, and vLLM's names carry the same values."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import MakeClient, MakeEngine
from tests.server.helpers import COMPLETIONS
from tfjax.server.metrics import ALIASED, ENGINE_HELP

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scrape(client: httpx.AsyncClient) -> Values:
    reply = await client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(reply.text))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def one(values: Values, name: str, **labels: str) -> float:
    return values[name, tuple(sorted({"model_name": "fake-1", **labels}.items()))]


async def test_counts_after_some_replies(client: httpx.AsyncClient) -> None:
    for ask in ({"prompt": "hi"}, {"prompt": "hi", "max_tokens": 4}, {"prompt": "hi", "max_tokens": 4, "draft": False}):
        assert (await client.post(COMPLETIONS, json=ask)).status_code == 200
    assert (await client.post(COMPLETIONS, json={"prompt": "hi", "stream": True, "max_tokens": 4})).status_code == 200
    values = await scrape(client)
    assert one(values, "tfjax:prompt_tokens_total") == 8
    assert one(values, "tfjax:generation_tokens_total") == 15 + 4 + 4 + 4
    assert one(values, "tfjax:request_success_total", finished_reason="length") == 3
    assert one(values, "tfjax:request_success_total", finished_reason="stop") == 1
    assert one(values, "tfjax:spec_decode_num_draft_tokens_total") == 15 + 4 + 4
    assert one(values, "tfjax:spec_decode_num_accepted_tokens_total") == 7 + 2 + 2
    assert one(values, "tfjax:spec_decode_num_accepted_tokens_per_pos_total", position="0") == 11
    assert one(values, "tfjax:draft_stood_aside_rounds_total") == 15 + 4 + 4
    assert one(values, "tfjax:draft_probes_total") == 3
    assert one(values, "tfjax:time_to_first_token_seconds_count") == 4
    assert one(values, "tfjax:e2e_request_latency_seconds_count") == 4
    # 15 tokens in rounds of 3, and three times 4 tokens: the first round of each has no token before it.
    assert one(values, "tfjax:inter_token_latency_seconds_count") == 12 + 1 + 1 + 1
    assert one(values, "tfjax:rounds_total") > 0
    assert one(values, "tfjax:lanes_active") == 0


async def test_reused_tokens_are_hits_of_all_prompt_tokens(make_client: MakeClient, make_engine: MakeEngine) -> None:
    engine = make_engine()
    client = make_client(engine)
    for engine.cached in (0, 3):
        await client.post(COMPLETIONS, json={"prompt": "hello"})
    values = await scrape(client)
    assert one(values, "vllm:prefix_cache_queries_total") == 10
    assert one(values, "vllm:prefix_cache_hits_total") == 3


async def test_aliases_are_equal_and_complete(client: httpx.AsyncClient) -> None:
    await client.post(COMPLETIONS, json={"prompt": "hi"})
    values = await scrape(client)
    own = {key: value for key, value in values.items() if key[0].startswith("tfjax:")}
    alias = {key: value for key, value in values.items() if key[0].startswith("vllm:")}
    assert len(own) + len(alias) == len(values)
    for (name, labels), value in alias.items():
        assert own[name.replace("vllm:", "tfjax:"), labels] == value
    found = {name.removeprefix("vllm:") for name, _ in alias}
    for name in set(ALIASED) - {"kv_cache_usage_perc"}:
        assert any(known.startswith(name) for known in found), name


async def test_nothing_is_made_up(client: httpx.AsyncClient) -> None:
    await client.post(COMPLETIONS, json={"prompt": "hi"})
    text = (await client.get("/metrics")).text
    assert "num_preemptions" not in text
    assert "kv_cache_usage" not in text
    assert "_created" not in text


async def test_refusals_are_counted(client: httpx.AsyncClient) -> None:
    reply = await client.post(COMPLETIONS, json={"prompt": ["hi"] * 16, "n": 4})
    assert reply.status_code == 503
    assert one(await scrape(client), "tfjax:rejected_total", reason="queue_full") == 1


async def test_each_has_words_of_its_own(client: httpx.AsyncClient) -> None:
    await client.post(COMPLETIONS, json={"prompt": "hi"})
    lines = (await client.get("/metrics")).text.splitlines()
    said = dict(line.split(" ", 3)[2:] for line in lines if line.startswith("# HELP tfjax:"))
    assert len(said) > 15
    assert len(set(said.values())) == len(said)
    for name, text in said.items():
        assert len(text.split()) >= 3, f"{name}: {text}"


def test_every_counter_of_the_engine_has_words() -> None:
    counted = {"rounds_total", "lanes_active", "kv_cache_usage_perc", "prompt_cache_usage_perc", "compiles_total"}
    assert set(ENGINE_HELP) == counted | {"num_requests_running", "num_requests_waiting"}
