"""Files written in pieces are what the safetensors library reads; nothing is left out unnoticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

from tfjax.checkpoints.safetensors_writer import DTYPES, Layout, SafetensorsWriter

LAYOUTS = {
    "map": Layout("I64", (3,)),
    "words": Layout("U32", (2, 3, 4)),
    "flags": Layout("BOOL", (5,)),
    "norm": Layout("BF16", (3,)),
    "half": Layout("F16", (1, 2)),
    "bias": Layout("F32", (3,)),
    "ids": Layout("I32", (2,)),
}


def draws(layout: Layout) -> NDArray[Any]:
    return np.random.default_rng(1).integers(0, 2, layout.shape).astype(DTYPES[layout.dtype])


def write_all(file: Path, *, without: str = "") -> None:
    with SafetensorsWriter(file, LAYOUTS, {"format": "mlx"}) as writer:
        for name, layout in reversed(LAYOUTS.items()):
            if name == without:
                continue
            values = draws(layout)
            if name == "words":
                for place in (1, 0):
                    writer.write(name, values[place], place)
            else:
                writer.write(name, values)


def test_the_library_reads_what_was_written(tmp_path: Path) -> None:
    write_all(tmp_path / "m.safetensors")
    with safe_open(tmp_path / "m.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "mlx"}
        assert set(file.keys()) == set(LAYOUTS)
        for name, layout in LAYOUTS.items():
            found = file.get_tensor(name)
            assert found.dtype == DTYPES[layout.dtype]
            np.testing.assert_array_equal(found, draws(layout))


def test_every_tensor_is_aligned_to_its_items(tmp_path: Path) -> None:
    write_all(tmp_path / "m.safetensors")
    data = (tmp_path / "m.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert size % 8 == 0
    for name, layout in LAYOUTS.items():
        assert header[name]["data_offsets"][0] % DTYPES[layout.dtype].itemsize == 0


@pytest.mark.parametrize("name", ["norm", "words"])
def test_a_tensor_that_was_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"not written: {name}"):
        write_all(tmp_path / "m.safetensors", without=name)


@pytest.mark.parametrize(
    ("name", "values", "place"),
    [
        ("norm", np.zeros(4, ml_dtypes.bfloat16), None),
        ("norm", np.zeros(3, np.float32), None),
        ("words", np.zeros((2, 3), np.uint32), 0),
    ],
)
def test_another_tensor_than_announced(tmp_path: Path, name: str, values: Any, place: int | None) -> None:
    message = rf"{name}: .* \(.*\), announced as"
    file = tmp_path / "m.safetensors"
    with pytest.raises(ValueError, match=message), SafetensorsWriter(file, LAYOUTS, {}) as writer:
        writer.write(name, values, place)


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_text("kept")
    with pytest.raises(FileExistsError):
        SafetensorsWriter(tmp_path / "m.safetensors", LAYOUTS, {})
    assert (tmp_path / "m.safetensors").read_text() == "kept"
