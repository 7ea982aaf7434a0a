"""Opens the default model for proofs: backend, settings and tokenizer, without a server."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.exactness import Matrix
from tfjax.checkpoints import open_checkpoint
from tfjax.checkpoints.resolve import resolve_model
from tfjax.engine.fitting import fit_memory
from tfjax.engine.load import start_backend, time_widths
from tfjax.engine.target import TargetBackend
from tfjax.engine.weights import load_model
from tfjax.kernels.paged_attention import PAGE_ROWS
from tfjax.lanes.settings import Settings
from tfjax.terminal import PhaseLines
from tfjax.text.loading import load_tokenizer
from tfjax.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Opened:
    """The default model, ready to make replies. `description` names checkpoint and number format."""

    matrix: Matrix
    backend: TargetBackend
    settings: Settings
    tokenizer: Tokenizer
    description: str


def open_matrix(*, dtype: str = "auto", context: int = 4096, lanes: int = 5) -> Opened:
    """Load, compile and probe. One lane more than streams leaves room for neighbours that are cancelled."""
    progress = PhaseLines()
    path = resolve_model(None, offline=True, progress=progress)
    checkpoint = open_checkpoint(path)
    tokenizer = load_tokenizer(checkpoint)
    model = load_model(checkpoint, dtype, progress)
    memory = fit_memory(model, asked=context, lanes=lanes)
    backend, _ = start_backend(model, memory, progress)
    backend.window_ms = time_widths(backend, checkpoint, progress)
    progress.close()
    settings = Settings(
        lanes=lanes, context=memory.context, pages=memory.pages, page_rows=PAGE_ROWS, vocab_size=backend.vocab
    )
    return Opened(Matrix(backend, settings, tokenizer), backend, settings, tokenizer, f"{path.name}, {dtype}")
