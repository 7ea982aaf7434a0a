"""What a server is told at its start. Flags, environment variables, help and limits are all read from these fields."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjax import setting_values as values
from tfjax.addresses import is_loopback
from tfjax.api_keys import read_api_keys
from tfjax.kinds import Choice, HostName, Integer, Number, Origin, Text
from tfjax.options import MASK, ConfigError, check_values, options, setting

ENDPOINT, ACCESS, MODEL = "endpoint", "access", "model and memory"
DRAFTS, LIMITS, LOGGING = "drafting", "limits", "logging"

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Settings of `tfjax serve`, checked when made.

    Raises:
        ConfigError: a value out of its limits, or a network address that would be open to others without a key.
    """

    model: str | None = setting(
        None,
        "--model",
        kind=Text(),
        group=MODEL,
        help="directory of safetensors, GGUF file or hub id",
        default_text="SmolLM2-135M-Instruct",
        positional=True,
    )
    dtype: str = setting(
        "auto",
        "--dtype",
        kind=Choice(values.DTYPES),
        group=MODEL,
        help="number format of weights and cache; auto is bfloat16, float32 takes twice the memory and is slower",
    )
    weights: str = setting(
        values.WEIGHTS_AUTO,
        "--weights",
        kind=Choice(values.words(values.WEIGHTS_AUTO, values.WEIGHTS_PACKED, values.WEIGHTS_DENSE)),
        group=MODEL,
        help="whether quantized weights (MLX's, GGUF's Q4_0, Q4_1 and Q8_0) stay packed in memory: packed takes a "
        "fraction of it and expands them in every forward, dense is faster; the tokens stay the same; auto is dense "
        "where it fits beside a cache",
    )
    kernels: str = setting(
        values.KERNELS_AUTO,
        "--kernels",
        kind=Choice(values.words(values.KERNELS_AUTO, values.KERNELS_REFERENCE)),
        group=MODEL,
        help="operators of the model: auto takes our own kernels on Hopper GPUs where they know all of a model's "
        "shapes, reference XLA's everywhere, which is slower there; each has its own roundings",
    )
    context: int | None = setting(
        None,
        "--context",
        "--max-model-len",
        kind=Integer(16, 1 << 24),
        group=MODEL,
        help="most tokens of one request, prompt and reply together; more takes more memory for each stream",
        default_text="the model's own, cut to what memory holds",
    )
    parallel: int = setting(
        4,
        "--parallel",
        "--max-num-seqs",
        kind=Integer(1, 256),
        group=MODEL,
        help="requests generated at once; more are each slower and take more memory; others wait in the queue",
    )
    prompt_cache_gib: float | None = setting(
        None,
        "--prompt-cache-gib",
        kind=Number(0, 1 << 20, "GIB"),
        group=MODEL,
        help="GiB of finished prompts and replies kept for requests that begin with them; more spares more prompt "
        "time and takes memory, 0 computes every prompt anew",
        default_text="1.0, cut to what the contexts leave",
    )
    offline: bool = setting(
        False,
        "--offline",
        group=MODEL,
        help="use only files that are here already; a model that is not here is an error instead of a download",
        off_flag="--no-offline",
    )
    no_drafts: bool = setting(
        False,
        "--no-drafts",
        group=DRAFTS,
        help="generate one token at a time; the tokens stay the same, repetitive text comes slower",
        off_flag="--drafts",
    )
    draft_tokens: int = setting(
        31,
        "--draft-tokens",
        "--num-draft-tokens",
        kind=Integer(1, 63),
        group=DRAFTS,
        help="most drafts checked in one round of a stream; fewer cost less when wrong and gain less when right",
    )
    drafter: str = setting(
        values.DRAFTER_AUTO,
        "--drafter",
        kind=Text("auto|none|copy|table|PATH"),
        group=DRAFTS,
        help="what guesses ahead beside copied text: a small model (directory or GGUF file of the same vocabulary), a "
        "table of frequent continuations (.safetensors file), auto or table for what comes with tfjax for the model, "
        "copy for copied text alone, none for no drafts; a better one is faster, the tokens stay the same",
    )
    drafter_depth: int | None = setting(
        None,
        "--drafter-depth",
        kind=Integer(1, 16, zero="give --drafter copy to draft without a small model, --drafter none not to draft"),
        group=DRAFTS,
        help="most drafts that a drafting model makes at a time; how many it does make is measured and priced",
        default_text="8, a DSpark drafter's whole block",
    )
    drafter_bits: int = setting(
        16,
        "--drafter-bits",
        kind=Integer(1, 16, "{16,8}"),
        group=DRAFTS,
        help="precision of a DSpark drafter's weights; 8 rounds them to what an 8-bit file would hold",
    )
    drafter_qk_norm: str = setting(
        values.QK_NORM_CONFIG,
        "--drafter-qk-norm",
        kind=Choice(values.words(values.QK_NORM_CONFIG, "before_rope", "after_rope", "none")),
        group=DRAFTS,
        help="where a DSpark drafter norms queries and keys; as it was not trained, it lands fewer drafts",
    )
    drafter_policy: str = setting(
        values.POLICY_AUTO,
        "--drafter-policy",
        kind=Choice(values.words(values.POLICY_AUTO, values.POLICY_ALWAYS, values.POLICY_NEVER)),
        group=DRAFTS,
        help="whether a DSpark drafter drafts: auto leaves it out on devices where none was tried, never everywhere",
    )
    held_drafts: str = setting(
        values.HELD_AUTO,
        "--held-drafts",
        kind=Choice(values.words(values.HELD_AUTO, values.HELD_ON, values.HELD_OFF)),
        group=DRAFTS,
        help="whether a DSpark drafter's drafts stay on the device until they are checked: on waits once a round "
        "less for it, off lets how sure the drafter is decide how many are checked; auto is on everywhere but on CPU",
    )
    host: str = setting(
        "127.0.0.1",
        "--host",
        kind=HostName(),
        group=ENDPOINT,
        help="address to listen on; one that other machines reach (0.0.0.0) needs --api-key or --insecure",
    )
    port: int = setting(
        8080,
        "--port",
        kind=Integer(0, 65535),
        group=ENDPOINT,
        help="port to listen on; 0 takes a free one and prints it",
    )
    alias: tuple[str, ...] = setting(
        (),
        "--alias",
        "--served-model-name",
        kind=Text("NAME", longest=256),
        group=ENDPOINT,
        help="further name that requests may use for the model; the first is the one that replies carry",
        default_text="the model's own name only",
        repeat=True,
    )
    api_key: tuple[str, ...] = setting(
        (),
        "--api-key",
        kind=Text("KEY", longest=512, visible_ascii=True),
        group=ACCESS,
        help="key that requests must bring; without one everybody who reaches the port is served",
        repeat=True,
        secret=True,
    )
    api_key_file: str | None = setting(
        None,
        "--api-key-file",
        kind=Text("FILE"),
        group=ACCESS,
        help="file of keys, one a line, private to its owner; unlike --api-key not seen in the process list",
    )
    insecure: bool = setting(
        False,
        "--insecure",
        group=ACCESS,
        help="allow an address that other machines reach without a key; anybody on the network can then use the server",
        off_flag="--no-insecure",
    )
    cors_origin: tuple[str, ...] = setting(
        (),
        "--cors-origin",
        kind=Origin(),
        group=ACCESS,
        help="web page origin whose scripts may read replies; others are refused by the browser",
        repeat=True,
    )
    allowed_host: tuple[str, ...] = setting(
        (),
        "--allowed-host",
        kind=HostName("NAME"),
        group=ACCESS,
        help="further Host header to answer on a loopback address; others are refused, which stops DNS rebinding",
        default_text="localhost and loopback addresses",
        repeat=True,
    )
    max_body_bytes: int = setting(
        4 * MIB,
        "--max-body-bytes",
        kind=Integer(1024, (64 * MIB) - 1, "BYTES"),
        group=LIMITS,
        help="longest request body; a longer one is answered 413, and each connection may hold that much memory",
    )
    max_queue: int = setting(
        64,
        "--max-queue",
        kind=Integer(0, 65536),
        group=LIMITS,
        help="requests that may wait for a free stream; one more is answered 503",
    )
    queue_wait_s: float = setting(
        300.0,
        "--queue-wait-s",
        kind=Number(0.001, 86400, "SECONDS"),
        group=LIMITS,
        help="longest wait in the queue; a request that waited longer is answered 503",
    )
    keep_alive_s: float = setting(
        30.0,
        "--keep-alive-s",
        kind=Number(1, 3600, "SECONDS"),
        group=LIMITS,
        help="an idle connection is closed after that time; longer ones save reconnects and hold connections",
    )
    drain_s: float = setting(
        30.0,
        "--drain-s",
        kind=Number(0, 3600, "SECONDS"),
        group=LIMITS,
        help="time that running replies get at a stop signal; what is not finished then is cut with an error",
    )
    log_format: str = setting(
        "text",
        "--log-format",
        kind=Choice({"text": "text", "json": "json"}),
        group=LOGGING,
        help="text for people, json one object a line",
    )
    log_prompts: bool = setting(
        False,
        "--log-prompts",
        group=LOGGING,
        help="write prompts and replies to the log; without it no text of a request is stored anywhere",
        off_flag="--no-log-prompts",
    )

    def __post_init__(self) -> None:
        check_values(self)
        if trouble := values.drafting_trouble(self.no_drafts, self.drafter, self.drafter_bits):
            raise ConfigError(trouble)
        if not (is_loopback(self.host) or self.api_key or self.api_key_file or self.insecure):
            raise ConfigError(
                f"--host: {self.host!r} can be reached from other machines and no key is set; give --api-key KEY or "
                "--api-key-file FILE, listen on 127.0.0.1, or accept everybody with --insecure"
            )
        if self.api_key_file is not None:
            read_api_keys(Path(self.api_key_file))

    @property
    def drafts(self) -> bool:
        """Whether anything drafts."""
        return not self.no_drafts and self.drafter != values.DRAFTER_NONE

    def resolved(self) -> dict[str, Any]:
        """All values by name, fit for JSON, secrets masked."""
        found: dict[str, Any] = {}
        for field, option in options(self):
            value = getattr(self, field.name)
            items = [MASK if option.secret else item for item in value] if option.repeat else value
            found[field.name] = items
        return found

    def changed(self) -> dict[str, Any]:
        """The values that are not the default, as `resolved` shows them."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return {name: value for name, value in self.resolved().items() if getattr(self, name) != defaults[name]}
