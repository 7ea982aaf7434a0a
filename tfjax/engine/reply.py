"""One reply on its way: tokens become text, stop strings are found, and what happened is counted."""

from __future__ import annotations

import hashlib
import logging
import struct
from collections.abc import Collection, Sequence

from tfjax.engine.api import Event, Finished, Generation, Sink, Stats, TokenLogprob, Tokens
from tfjax.lanes.stream import Counts, Stream, Times
from tfjax.text.detokenizer import Detokenizer
from tfjax.text.stops import StopMatcher
from tfjax.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class Reply:
    """The text and the events of one generation. Lives on the engine thread, but for `cancelled`."""

    def __init__(self, generation: Generation, sink: Sink, tokenizer: Tokenizer, submitted_s: float):
        self.generation = generation
        self.submitted_s = submitted_s
        self.stream: Stream | None = None
        self.cancelled = False
        self._sink = sink
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(generation.stop)
        self._hash = hashlib.sha256()
        self._pieces: list[str] = []
        self._text_ends: list[int] = []
        self._characters = 0

    def attach(self, stream: Stream) -> None:
        """The lane loop took the request. A cancellation that came before counts too."""
        self.stream = stream
        if self.cancelled:
            stream.cancelled = True

    def cancel(self) -> None:
        """Any thread, any number of times."""
        self.cancelled = True
        if self.stream is not None:
            self.stream.cancelled = True

    def waiting(self) -> bool:
        """Any thread: whether no lane has been given yet."""
        stream = self.stream
        return stream is None or (stream.lane < 0 and stream.reason is None)

    @property
    def may_stop(self) -> bool:
        """Whether a stop string may end the reply, so that `check` has to see each token before it is emitted."""
        return any(self.generation.stop)

    def check(self, token: int) -> bool:
        """Take the next emitted token (no stop id); True once a stop string is complete."""
        self._add(self._stops.push(self._detokenizer.push(token)))
        self._text_ends.append(self._characters)
        return self._stops.hit

    def _add(self, text: str) -> None:
        self._characters += len(text)
        self._pieces.append(text)

    def on_tokens(
        self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob] | None, stop_ids: Collection[int] = ()
    ) -> None:
        """Send what one round emitted. `check` has seen all but a stop id, or none of them."""
        for token in tokens[len(self._text_ends) :]:
            if token not in stop_ids:
                self.check(token)
        self._hash.update(struct.pack(f"<{len(tokens)}i", *tokens))
        text, self._pieces = "".join(self._pieces), []
        ends = self._text_ends + [self._characters] * (len(tokens) - len(self._text_ends))
        self._text_ends = []
        self._send(Tokens(tuple(tokens), text, None if logprobs is None else tuple(logprobs), tuple(ends)))

    def on_finish(self, stream: Stream, now_s: float) -> None:
        """Send the held-back tail, if any, and the end."""
        self._pieces = []
        if not self._stops.hit:
            tail = self._stops.push(self._detokenizer.flush()) + self._stops.flush()
            if tail:
                self._send(Tokens((), tail))
        self._send(Finished(stream.reason or "error", self._stats(stream, now_s), stream.error))

    def refuse(self, message: str, now_s: float) -> None:
        """End a generation that the lane loop did not take, or will not finish."""
        reason = "cancelled" if self.cancelled else "error"
        self._send(Finished(reason, self._stats(self.stream, now_s), None if self.cancelled else message))

    def _stats(self, stream: Stream | None, now_s: float) -> Stats:
        """What is known of a stream; of none, where the lane loop did not take the request."""
        counts = Counts() if stream is None else stream.counts
        times = Times(now_s) if stream is None else stream.times
        finished_s = now_s if times.finished_s is None else times.finished_s
        started_s = finished_s if times.started_s is None else times.started_s
        first_s = finished_s if times.first_token_s is None else times.first_token_s
        return Stats(
            prompt_tokens=len(self.generation.prompt),
            completion_tokens=0 if stream is None else stream.emitted,
            cached_tokens=0 if stream is None else stream.reused,
            rounds=counts.rounds,
            drafted=counts.drafted,
            accepted=counts.accepted,
            drafted_per_position=tuple(counts.drafted_per_position),
            accepted_per_position=tuple(counts.accepted_per_position),
            drafted_rounds=counts.drafted_rounds,
            min_rows=counts.min_rows,
            queue_ms=1000 * (started_s - self.submitted_s),
            prefill_ms=1000 * (first_s - started_s),
            ttft_ms=0.0 if times.first_token_s is None else 1000 * (first_s - self.submitted_s),
            decode_ms=1000 * (finished_s - first_s),
            seed=self.generation.sampling.seed,
            token_sha256=self._hash.hexdigest(),
            stood_aside_rounds=counts.stood_aside_rounds,
            probes=counts.probes,
        )

    def _send(self, event: Event) -> None:
        try:
            self._sink(event)
        except Exception:
            log.exception("the receiver of %s failed; the request is cancelled", self.generation.id)
            self.cancel()
