"""What is kept is found again by what it was made from, and by nothing less."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from tests.engine.test_step import Telling
from tfjax.engine import kept_programs
from tfjax.engine.kept_programs import NOTHING_KEPT, UNUSED_S, KeptPrograms, kept_for
from tfjax.engine.lane_tables import empty_tables
from tfjax.engine.rows_buffer import RowsBuffer
from tfjax.engine.step import Bucket, State, Step
from tfjax.kernels.routes import Route


@contextlib.contextmanager
def compile_cache(directory: Path | None) -> Iterator[None]:
    """JAX's own is there, or off."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(directory) if directory else None)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        compilation_cache.reset_cache()


@pytest.fixture(autouse=True)
def nothing_is_spared() -> Iterator[None]:
    """The tests' compile cache may know these programs from an earlier run."""
    with compile_cache(None):
        yield


class Start:
    """One start of a server that needs one program."""

    def __init__(self, directory: Path | None, key: str = "a model", *, name: str = "double", rows: int = 3):
        self.lowered = 0
        self.programs: list[Any] = []
        self.rows = rows
        arguments = {"x": jax.ShapeDtypeStruct((rows,), jnp.float32)}

        def lower() -> Any:
            self.lowered += 1
            return jax.jit(lambda given: 2 * given["x"]).lower(arguments)

        KeptPrograms(directory, [key]).prepare(name, arguments, lower, self.programs.append)()

    def run(self) -> list[float]:
        (program,) = self.programs
        found: list[float] = program({"x": jnp.arange(self.rows, dtype=jnp.float32)}).tolist()
        return found


def test_a_later_start_does_not_lower(tmp_path: Path) -> None:
    first, second = Start(tmp_path), Start(tmp_path)
    assert (first.lowered, second.lowered) == (1, 0)
    assert first.run() == second.run() == [0, 2, 4]
    assert [file.suffix for file in tmp_path.iterdir()] == [".program"]


@pytest.mark.parametrize(
    "other", [{"key": "another model"}, {"name": "triple"}, {"rows": 4}], ids=lambda other: next(iter(other))
)
def test_another_program_is_another(tmp_path: Path, other: dict[str, Any]) -> None:
    Start(tmp_path)
    assert Start(tmp_path, **other).lowered == 1


@pytest.mark.parametrize("changed", ["sources", "setting", "device"])
def test_other_surroundings_make_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    Start(tmp_path)
    if changed == "sources":
        monkeypatch.setattr(kept_programs, "code_version", lambda: "newer")
    elif changed == "setting":
        monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_something=true")
    else:
        before = kept_programs.jax.devices()[0]

        class Other:
            device_kind, client = "another device", before.client

        monkeypatch.setattr(kept_programs.jax, "devices", lambda: [Other()])
    assert Start(tmp_path).lowered == 1


def test_where_programs_are_cached_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Start(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert Start(tmp_path).lowered == 0


def test_a_damaged_file_is_compiled_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Start(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    again = Start(tmp_path)
    assert again.lowered == 1
    assert again.run() == [0, 2, 4]
    assert "is not used" in caplog.text
    assert Start(tmp_path).lowered == 1
    assert Start(tmp_path).lowered == 0


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_directory_that_others_may_write_is_not_read(tmp_path: Path, mode: int) -> None:
    programs = tmp_path / "programs"
    Start(programs)
    assert programs.stat().st_mode & 0o777 == 0o700
    assert Start(programs).lowered == 0
    programs.chmod(mode)
    assert Start(programs).lowered == 1


def test_what_the_compile_cache_gave_is_not_kept(tmp_path: Path) -> None:
    with compile_cache(tmp_path / "jax"):
        first = Start(tmp_path / "one")
        second = Start(tmp_path / "two")
        assert first.run() == second.run() == [0, 2, 4]
        assert len(list((tmp_path / "one").iterdir())) == 1
        assert not (tmp_path / "two").exists()
        assert Start(tmp_path / "one").lowered == 0


def test_an_unwritable_directory_only_costs_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    start = Start(blocked / "programs")
    assert start.run() == [0, 2, 4]
    assert "is not kept" in caplog.text


def test_what_nobody_asks_for_is_removed(tmp_path: Path) -> None:
    Start(tmp_path)
    (old,) = tmp_path.iterdir()
    before = time.time() - UNUSED_S - 60
    os.utime(old, (before, before))
    Start(tmp_path, rows=5)
    assert old not in list(tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 1


def test_only_device_routes_keep_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept_for(object(), "config", Route.REFERENCE) is NOTHING_KEPT
    assert Start(None).lowered == Start(None).lowered == 1
    kept = kept_for(object(), "config", Route.PALLAS_GPU)
    kept.prepare("one", jnp.zeros(2), lambda: jax.jit(jnp.sin).lower(jnp.zeros(2)), lambda compiled: None)()
    assert len(list((tmp_path / "tfjax" / "programs").iterdir())) == 1


def test_a_step_is_kept_by_taps_and_bucket(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A whole step goes there and back, with the trees of its arguments and results."""
    caplog.set_level(logging.WARNING)
    bucket, table, state = Bucket(2, 2, 2), jnp.zeros((2, 2), jnp.int32), State((), empty_tables(2, 32, 128))
    told = []
    for taps in ((5, 2), (5, 2), (7, 1)):
        step = Step(Telling(), taps, kept=KeptPrograms(tmp_path, ["telling"]))
        step.compile(bucket, State((), empty_tables(2, 32, 128)), table)
        told.append(step(bucket, state, np.zeros(2, np.int32), RowsBuffer(2).matrix, table).features.tolist())
        state = State((), empty_tables(2, 32, 128))
    assert told == [[5, 2], [5, 2], [7, 1]]
    assert len(list(tmp_path.iterdir())) == 2
    assert not caplog.text
