"""The loop's numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """What the loop is told once.

    Attributes:
        lanes: streams that the backend holds at once.
        context: most positions of one request, prompt and reply.
        pages: cache pages of all lanes together, those of kept prompts among them.
        page_rows: positions of one page.
        vocab_size: token ids are below this.
        growth_rows: positions that a stream holds pages for in advance.
        batch_streams: most streams of one round.
        batch_rows: most fixed rows (pending and forced tokens) of one round.
        draft_tokens: most drafts of one window; 0 turns drafts off.
        first_width: drafts of a first copy, and of any window while no width has been timed.
        prompt_pages: most pages that keep rows for later prompts while nobody holds them; 0 keeps none.
        learn_rows: learn from the times of rounds what a row adds to the measured widths, and verify more drafts than
            pay in some rounds to see it.
        run_ahead: queue the next forward before the last one's draws are read, where that needs nothing of the host.
    """

    lanes: int
    context: int
    pages: int
    page_rows: int
    vocab_size: int
    growth_rows: int = 2048
    batch_streams: int = 32
    batch_rows: int = 32
    draft_tokens: int = 64
    first_width: int = 1
    prompt_pages: int = 0
    learn_rows: bool = False
    run_ahead: bool = True

    def __post_init__(self) -> None:
        may_be_zero = ("draft_tokens", "prompt_pages", "learn_rows", "run_ahead")
        least = dict.fromkeys(self.__slots__, 1) | dict.fromkeys(may_be_zero, 0) | {"context": 2}
        for name, limit in least.items():
            if getattr(self, name) < limit:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {limit}")
