"""How a token is shown in logprobs."""

from __future__ import annotations

from tfjax.engine.api import TokenLogprob
from tfjax.server.port import TokenizerPort
from tfjax.server.replies import TextLogprobs, TokenLogprobs, TopLogprob


class Speller:
    """Spells tokens: text and bytes for the chat shape, a string unique to its bytes for the older one."""

    def __init__(self, tokenizer: TokenizerPort) -> None:
        self._tokenizer = tokenizer

    def chat(self, entry: TokenLogprob) -> TokenLogprobs:
        raw = self._bytes(entry.token)
        tops = [self._top(token, logprob) for token, logprob in entry.top]
        return TokenLogprobs(_shown(raw), _finite(entry.logprob), list(raw), tops)

    def text(self, entries: tuple[TokenLogprob, ...], offsets: tuple[int, ...], *, tops: bool) -> TextLogprobs:
        top_logprobs = None
        if tops:
            top_logprobs = [{self._unique(t): _finite(logprob) for t, logprob in entry.top} for entry in entries]
        return TextLogprobs(
            tokens=[self._unique(entry.token) for entry in entries],
            token_logprobs=[_finite(entry.logprob) for entry in entries],
            top_logprobs=top_logprobs,
            text_offset=list(offsets),
        )

    def _top(self, token: int, logprob: float) -> TopLogprob:
        raw = self._bytes(token)
        return TopLogprob(_shown(raw), _finite(logprob), list(raw))

    def _bytes(self, token: int) -> bytes:
        if self._tokenizer.is_special(token):
            return self._tokenizer.token_text(token).encode()
        return self._tokenizer.token_bytes(token)

    def _unique(self, token: int) -> str:
        raw = self._bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _finite(logprob: float) -> float:
    """JSON has no infinity; a token that cannot be drawn reads as OpenAI's -9999."""
    return max(logprob, -9999.0)
