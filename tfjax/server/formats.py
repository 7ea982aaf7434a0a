"""Turns pieces into OpenAI's objects: one format for chat, one for completions, each whole and as chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from msgspec import UNSET, Struct, UnsetType

from tfjax.engine.api import Finished, TokenLogprob
from tfjax.server import replies
from tfjax.server.plan import Plan
from tfjax.server.reply import Piece
from tfjax.server.spelling import Speller
from tfjax.server.tally import block_of, timings_of, usage_of


@dataclass(slots=True)
class Choice:
    """A whole choice, folded from its pieces."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    finished: Finished | None = None

    def add(self, piece: Piece) -> None:
        self.texts.append(piece.text)
        self.logprobs.extend(piece.logprobs)
        self.offsets.extend(piece.offsets)
        self.finished = piece.finished or self.finished

    def as_piece(self, index: int) -> Piece:
        return Piece(index, "".join(self.texts), tuple(self.logprobs), tuple(self.offsets), self.finished)


class Format(Protocol):
    """How one route writes a reply."""

    def opening(self, choice: int) -> Struct | None:
        """The first chunk of a choice, if the route has one."""

    def chunk(self, piece: Piece) -> Struct:
        """A content chunk; the last of a choice carries finish_reason, timings and the tfjax block."""

    def usage(self, finished: Sequence[Finished]) -> Struct:
        """The chunk without choices that carries the usage."""

    def whole(self, pieces: Sequence[Piece]) -> Struct:
        """The reply of a request that does not stream."""


def _reason(finished: Finished | None) -> replies.FinishReason | None:
    return None if finished is None else cast("replies.FinishReason", finished.reason)


def _all_finished(pieces: Sequence[Piece]) -> list[Finished]:
    return [piece.finished for piece in pieces if piece.finished is not None]


class _Base:
    def __init__(self, plan: Plan, speller: Speller) -> None:
        self._plan = plan
        self._speller = speller

    def _no_usage(self) -> UnsetType | None:
        return None if self._plan.include_usage else UNSET


class ChatFormat(_Base):
    """chat.completion and chat.completion.chunk."""

    def opening(self, choice: int) -> Struct | None:
        delta = replies.Delta(role="assistant", content="")
        return self._chunk([replies.ChatChunkChoice(choice, delta)])

    def chunk(self, piece: Piece) -> Struct:
        delta = replies.Delta(content=piece.text) if piece.text else replies.Delta()
        choice = replies.ChatChunkChoice(piece.choice, delta, self._logprobs(piece), _reason(piece.finished))
        chunk = self._chunk([choice])
        if piece.finished is not None:
            chunk.timings, chunk.tfjax = timings_of([piece.finished]), block_of(piece.finished.stats)
        return chunk

    def usage(self, finished: Sequence[Finished]) -> Struct:
        chunk = self._chunk([])
        chunk.usage = usage_of(self._plan.prompt_tokens, finished)
        return chunk

    def whole(self, pieces: Sequence[Piece]) -> Struct:
        finished = _all_finished(pieces)
        choices = [self._choice(piece, alone=len(pieces) == 1) for piece in pieces]
        return replies.ChatReply(
            id=self._plan.id,
            created=self._plan.created,
            model=self._plan.model,
            choices=choices,
            usage=usage_of(self._plan.prompt_tokens, finished),
            timings=timings_of(finished),
            tfjax=block_of(finished[0].stats) if len(pieces) == 1 else UNSET,
        )

    def _choice(self, piece: Piece, *, alone: bool) -> replies.ChatChoice:
        assert piece.finished is not None
        return replies.ChatChoice(
            index=piece.choice,
            message=replies.Message(piece.text),
            finish_reason=cast("replies.FinishReason", piece.finished.reason),
            logprobs=self._logprobs(piece),
            tfjax=UNSET if alone else block_of(piece.finished.stats),
        )

    def _logprobs(self, piece: Piece) -> replies.ChatLogprobs | None:
        if not self._plan.wants_logprobs or (not piece.logprobs and not piece.text):
            return None
        return replies.ChatLogprobs([self._speller.chat(entry) for entry in piece.logprobs])

    def _chunk(self, choices: list[replies.ChatChunkChoice]) -> replies.ChatChunk:
        plan = self._plan
        return replies.ChatChunk(plan.id, plan.created, plan.model, choices, usage=self._no_usage())


class TextFormat(_Base):
    """text_completion."""

    def opening(self, choice: int) -> Struct | None:
        return None

    def chunk(self, piece: Piece) -> Struct:
        reply = self._reply([self._choice(piece, alone=True)])
        reply.usage = self._no_usage()
        if piece.finished is not None:
            reply.timings, reply.tfjax = timings_of([piece.finished]), block_of(piece.finished.stats)
        return reply

    def usage(self, finished: Sequence[Finished]) -> Struct:
        reply = self._reply([])
        reply.usage = usage_of(self._plan.prompt_tokens, finished)
        return reply

    def whole(self, pieces: Sequence[Piece]) -> Struct:
        finished = _all_finished(pieces)
        reply = self._reply([self._choice(piece, alone=len(pieces) == 1) for piece in pieces])
        reply.usage = usage_of(self._plan.prompt_tokens, finished)
        reply.timings = timings_of(finished)
        if len(pieces) == 1:
            reply.tfjax = block_of(finished[0].stats)
        return reply

    def _choice(self, piece: Piece, *, alone: bool) -> replies.TextChoice:
        block = UNSET if alone or piece.finished is None else block_of(piece.finished.stats)
        return replies.TextChoice(piece.choice, piece.text, _reason(piece.finished), self._logprobs(piece), block)

    def _logprobs(self, piece: Piece) -> replies.TextLogprobs | None:
        if not self._plan.wants_logprobs or (not piece.logprobs and not piece.text):
            return None
        tops = bool(self._plan.generations[piece.choice].sampling.logprobs)
        return self._speller.text(piece.logprobs, piece.offsets, tops=tops)

    def _reply(self, choices: list[replies.TextChoice]) -> replies.TextReply:
        plan = self._plan
        return replies.TextReply(plan.id, plan.created, plan.model, choices)
