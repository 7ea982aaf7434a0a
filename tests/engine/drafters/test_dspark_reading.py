from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engine.drafters.drafter_files import TOKENIZER
from tests.engine.drafters.dspark_files import TARGET, dspark_arrays, dspark_directory
from tfjax.engine.drafters.drafting_model import DraftingModel
from tfjax.engine.drafters.dspark_config import DSparkOptions
from tfjax.engine.drafters.loading import load_drafter


def load(path: Path, options: DSparkOptions = DSparkOptions(), depth: int = 4) -> DraftingModel:
    return load_drafter(path, TARGET, TOKENIZER, "float32", depth, lambda phase, share: None, dspark=options)


def test_liquids_packaging_shares_the_targets_embedding_and_head(tmp_path: Path) -> None:
    model = load(dspark_directory(tmp_path / "little"))
    module: Any = model.loaded.module
    own: Any = TARGET.module
    assert (model.name, model.kind, model.vocab, model.context) == ("little", "dspark", 264, 256)
    assert model.ids.tolist() == list(range(260))
    assert module.embedding[...].unsafe_buffer_pointer() == own.embedding[...].unsafe_buffer_pointer()
    assert module.head[...].unsafe_buffer_pointer() == own.embedding[...].unsafe_buffer_pointer()
    stored = dspark_arrays()
    padding = 4 * 16 * 4
    print(model.weight_bytes, sum(array.nbytes for array in stored.values()) - padding + 260 * 4)
    assert model.weight_bytes == sum(array.nbytes for array in stored.values()) - padding + 260 * 4
