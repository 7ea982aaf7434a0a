"""Models that mlx-lm quantized and saved give the logits that mlx-lm computes with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.models.tiny import Part, Streams
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.weights import load_model

GOLDENS = Path(__file__).parents[1] / "goldens"
VARIANTS = sorted(GOLDENS.glob("tiny_mlx_*"))


@pytest.mark.parametrize("directory", VARIANTS, ids=lambda path: path.name)
def test_logits_equal_mlx(directory: Path) -> None:
    golden = json.loads((directory / "golden.json").read_text())
    model = load_model(open_checkpoint(directory), "float32", lambda phase, share: None)
    streams, count = Streams(model.module, empty_cache=model.family.empty_cache), len(golden["input_ids"])
    streams.tokens[0, :count] = golden["input_ids"]
    streams.forward(count, Part(0, 0, count), tile_rows=count)
    found = np.stack([streams.logits[0, position] for position in range(count)])
    wanted = np.array(golden["logits"])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert np.array_equal(found.argmax(-1), wanted.argmax(-1))


def test_goldens_are_there() -> None:
    assert len(VARIANTS) == 3
