"""Opens the default model and its drafters for proofs, without a server."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.exactness import Matrix, Parts
from tfjax.checkpoints import open_checkpoint
from tfjax.checkpoints.resolve import resolve_model
from tfjax.config import ServeConfig
from tfjax.engine.drafters.choosing import choose_drafter
from tfjax.engine.drafters.joining import add_drafter, host_drafts
from tfjax.engine.fitting import fit_both
from tfjax.engine.load import start_backend, time_widths, timing_key
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import load_model
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.settings import Settings
from tfjax.terminal import PhaseLines
from tfjax.text.loading import load_tokenizer
from tfjax.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Opened:
    """The default model, ready to make replies. `description` names checkpoint, number format and drafter."""

    matrix: Matrix
    backend: TargetBackend
    settings: Settings
    tokenizer: Tokenizer
    description: str


def open_matrix(*, dtype: str = "auto", context: int = 4096, lanes: int = 5, drafter: str = "auto") -> Opened:
    """Load, compile and probe. One lane more than streams leaves room for neighbours that are cancelled."""
    config = ServeConfig(dtype=dtype, context=context, parallel=lanes, prompt_cache_gib=0, drafter=drafter)
    progress = PhaseLines()
    path = resolve_model(None, offline=True, progress=progress)
    checkpoint = open_checkpoint(path)
    tokenizer = load_tokenizer(checkpoint)
    model = load_model(checkpoint, dtype, progress, context)
    memory, choice = fit_both(config, model, choose_drafter(config, model, tokenizer, progress))
    target, _ = start_backend(model, memory, progress)
    target.window_ms = time_widths(target, checkpoint, progress)
    backend, choice = add_drafter(config, target, choice, timing_key(target, checkpoint), progress)
    progress.close()
    settings = Settings(
        lanes=lanes, context=memory.context, pages=memory.pages, page_rows=PAGE_ROWS, vocab_size=target.vocab
    )
    own = backend.drafter if isinstance(backend, Drafted) else None
    parts = Parts(target, own, host_drafts(choice, settings, target.widths[-1]), settings, tokenizer)
    name = choice.model.name if choice.model else "no small model"
    return Opened(Matrix(parts), target, settings, tokenizer, f"{path.name}, {dtype}, {name}")
