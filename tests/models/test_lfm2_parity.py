"""Logits of tiny random LFM2s equal those of transformers, in float32."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.models.tiny import Part, Streams
from tfjax.checkpoints import open_checkpoint
from tfjax.engine.weights import load_model

GOLDENS = Path(__file__).parents[1] / "goldens"
VARIANTS = sorted(path.name.removeprefix("tiny_lfm2_") for path in GOLDENS.glob("tiny_lfm2_*"))
IDS = 24


@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_transformers(variant: str) -> None:
    directory = GOLDENS / f"tiny_lfm2_{variant}"
    golden = json.loads((directory / "golden.json").read_text())
    model = load_model(open_checkpoint(directory), "float32", lambda phase, share: None)
    streams = Streams(model.module, empty_cache=model.family.empty_cache)
    streams.tokens[0, :IDS] = golden["input_ids"]
    streams.forward(IDS, Part(0, 0, IDS), tile_rows=IDS)
    found = np.stack([streams.logits[0, position] for position in range(IDS)])
    wanted = np.array(golden["logits"])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert np.array_equal(found.argmax(-1), wanted.argmax(-1))


def test_goldens_cover_what_a_config_can_say() -> None:
    assert len(VARIANTS) >= 13
