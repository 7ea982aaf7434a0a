"""What is really counted, as Prometheus metrics: `tfjax:` names, and vLLM's names with the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from tfjax.engine.api import Finished
from tfjax.server.port import EnginePort

OWN = "tfjax:"
ALIAS = "vllm:"
ALIASED = (
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "prompt_tokens",
    "generation_tokens",
    "request_success",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
    "spec_decode_num_accepted_tokens_per_pos",
)
_LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)


ENGINE_HELP: Mapping[str, str] = {
    "compiles_total": "programs compiled or read from the compile cache since the start; none are added while serving",
    "kv_cache_usage_perc": "share of the cache's pages that requests hold, 0 to 1",
    "lanes_active": "streams generated at this moment",
    "num_requests_running": "requests that are generated at this moment",
    "num_requests_waiting": "requests that wait for a free lane",
    "prompt_cache_usage_perc": "share of --prompt-cache-gib that holds prompts which no request uses, 0 to 1",
    "rounds_total": "forwards since the start that gave tokens to streams; forwards of prompts are not among them",
}
"""What each of the engine's counters counts."""


class _EngineGauges(Collector):
    """The engine's own counters, read when they are asked for."""

    def __init__(self, engine: Callable[[], EnginePort | None]) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        engine = self._engine()
        if engine is None:
            return
        status = engine.status()
        values: dict[str, float] = dict(engine.metrics())
        values |= {"num_requests_running": status.running, "num_requests_waiting": status.waiting}
        for name, value in sorted(values.items()):
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            metric = family(OWN + name, ENGINE_HELP.get(name, "as the engine counts it"), labels=("model_name",))
            metric.add_metric((engine.model_id,), value)
            yield metric


class _Aliases(Collector):
    """Repeats metrics under vLLM's prefix; equal by construction, for both come from one scrape."""

    def __init__(self, source: CollectorRegistry) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        for metric in self._source.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
            name = metric.name.removeprefix(OWN)
            if name in ALIASED:
                alias = Metric(ALIAS + name, metric.documentation, metric.type)
                alias.samples = [
                    Sample(ALIAS + s.name.removeprefix(OWN), s.labels, s.value, s.timestamp, s.exemplar)
                    for s in metric.samples
                ]
                yield alias


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the start. `drafts` are rounds that verified drafts."""

    generated: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0


class ServerMetrics:
    """Counts requests and tokens. Accepted means kept and emitted to a client."""

    def __init__(self, engine: Callable[[], EnginePort | None]) -> None:
        self._engine = engine
        self.totals = Totals()
        source = CollectorRegistry(auto_describe=False)
        source.register(_EngineGauges(engine))
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Aliases(source))
        self._make(source)

    def _make(self, source: CollectorRegistry) -> None:
        model = ("model_name",)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(OWN + name, text, model + labels, registry=source)

        def histogram(name: str, text: str, buckets: tuple[float, ...] = _LATENCY_S) -> Histogram:
            return Histogram(OWN + name, text, model, registry=source, buckets=buckets)

        self._prompt = counter("prompt_tokens", "tokens of the prompts of finished replies")
        self._queries = counter("prefix_cache_queries", "prompt tokens of finished replies, computed or reused")
        self._hits = counter("prefix_cache_hits", "those of them that were reused: computed for an earlier request")
        self._generated = counter("generation_tokens", "tokens generated, those of unfinished replies included")
        self._success = counter("request_success", "replies that ended, by the reason of their end", "finished_reason")
        self._ttft = histogram("time_to_first_token_seconds", "seconds from a request's arrival to its first token")
        self._itl = histogram("inter_token_latency_seconds", "seconds between two tokens of one reply", _TOKEN_S)
        self._e2e = histogram("e2e_request_latency_seconds", "seconds from a request's arrival to its last token")
        self._queue = histogram("request_queue_time_seconds", "seconds that a request waited for a free lane")
        self._prefill = histogram("request_prefill_time_seconds", "seconds from a free lane to the first token")
        self._decode = histogram("request_decode_time_seconds", "seconds from the first token of a reply to its last")
        self._drafts = counter("spec_decode_num_drafts", "rounds of a stream that verified drafts")
        self._drafted = counter("spec_decode_num_draft_tokens", "draft tokens verified")
        self._accepted = counter("spec_decode_num_accepted_tokens", "draft tokens kept and emitted")
        self._accepted_at = counter(
            "spec_decode_num_accepted_tokens_per_pos", "draft tokens kept, by place in the draft", "position"
        )
        self._aside = counter("draft_stood_aside_rounds", "rounds of a stream without the small model: it did not pay")
        self._probes = counter("draft_probes", "times that the small model was tried again after it did not pay")
        self._gone = counter("client_disconnections", "clients that left before their reply was complete")
        self._rejected = counter("rejected", "requests refused before generation", "reason")

    def tokens(self, count: int, gap_s: float | None) -> None:
        """`count` tokens of one choice arrived in one round, `gap_s` after that choice's last ones."""
        model = self._model()
        self._generated.labels(model).inc(count)
        self.totals = replace(self.totals, generated=self.totals.generated + count)
        if gap_s is not None:
            latency = self._itl.labels(model)
            for _ in range(count):
                latency.observe(gap_s / count)

    def choice_finished(self, event: Finished, e2e_s: float) -> None:
        model, stats = self._model(), event.stats
        self._success.labels(model, event.reason).inc()
        self._prompt.labels(model).inc(stats.prompt_tokens)
        self._queries.labels(model).inc(stats.prompt_tokens)
        self._hits.labels(model).inc(stats.cached_tokens)
        self._ttft.labels(model).observe(stats.ttft_ms / 1000)
        self._e2e.labels(model).observe(e2e_s)
        self._queue.labels(model).observe(stats.queue_ms / 1000)
        self._prefill.labels(model).observe(stats.prefill_ms / 1000)
        self._decode.labels(model).observe(stats.decode_ms / 1000)
        self._drafts.labels(model).inc(stats.drafted_rounds)
        self._drafted.labels(model).inc(stats.drafted)
        self._accepted.labels(model).inc(stats.accepted)
        self._aside.labels(model).inc(stats.stood_aside_rounds)
        self._probes.labels(model).inc(stats.probes)
        self.totals = replace(
            self.totals,
            drafts=self.totals.drafts + stats.drafted_rounds,
            drafted=self.totals.drafted + stats.drafted,
            accepted=self.totals.accepted + stats.accepted,
        )
        for position, count in enumerate(stats.accepted_per_position):
            self._accepted_at.labels(model, str(position)).inc(count)

    def disconnected(self) -> None:
        self._gone.labels(self._model()).inc()

    def rejected(self, reason: str) -> None:
        self._rejected.labels(self._model(), reason).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def _model(self) -> str:
        engine = self._engine()
        return engine.model_id if engine is not None else ""
