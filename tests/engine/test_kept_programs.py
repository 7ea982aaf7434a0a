"""What is kept is found again by what it was made from, and by nothing less."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from tests.engine.test_step import Telling
from tfjax.engine import kept_programs
from tfjax.engine.kept_programs import NOTHING_KEPT, UNUSED_S, KeptPrograms, Program, kept_for
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

    def __init__(self, directory: Path | None, key: str = "a model", **changed: Any):
        self.traced = 0
        self.programs: list[Any] = []
        self.rows = changed.get("rows", 3)
        state = jax.ShapeDtypeStruct((self.rows,), jnp.float32)
        program = Program("double", self.double, (jnp.float32(1), State(state, None)), donated=1, result=self.result)
        given = {name: value for name, value in changed.items() if name != "rows"}
        KeptPrograms(directory, [key]).prepare(replace(program, **given), self.programs.append)()

    result: Any = (0, State(0, None))

    def double(self, one: jax.Array, state: State) -> Any:
        self.traced += 1
        return one + 1, State(2 * state.cache, None)

    def run(self) -> list[float]:
        (program,) = self.programs
        given = State(jnp.arange(self.rows, dtype=jnp.float32), None)
        one, state = program(np.float32(4), given)
        assert one == 5
        assert state.tables is None
        found: list[float] = state.cache.tolist()
        return found


def test_a_later_start_does_not_trace(tmp_path: Path) -> None:
    first, second = Start(tmp_path), Start(tmp_path)
    assert (first.traced, second.traced) == (1, 0)
    assert first.run() == second.run() == [0, 2, 4]
    assert [file.suffix for file in tmp_path.iterdir()] == [".stablehlo"]


@pytest.mark.parametrize(
    "other", [{"key": "another model"}, {"name": "triple"}, {"rows": 4}], ids=lambda other: next(iter(other))
)
def test_another_program_is_another(tmp_path: Path, other: dict[str, Any]) -> None:
    Start(tmp_path)
    assert Start(tmp_path, **other).traced == 1


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
    assert Start(tmp_path).traced == 1


def test_where_programs_are_cached_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Start(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert Start(tmp_path).traced == 0


@pytest.mark.parametrize("place", [0, 40, 0.5, -1])
def test_a_damaged_file_is_lowered_again(tmp_path: Path, caplog: pytest.LogCaptureFixture, place: float) -> None:
    """One bit is enough: most of them the reader would not notice."""
    Start(tmp_path)
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[round(place * len(data)) if place == 0.5 else int(place)] ^= 4
    file.write_bytes(data)
    again = Start(tmp_path)
    assert again.traced == 1
    assert again.run() == [0, 2, 4]
    assert "is not used" in caplog.text
    assert Start(tmp_path).traced == 0


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_directory_that_others_may_write_is_not_read(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    programs = tmp_path / "programs"
    Start(programs)
    assert programs.stat().st_mode & 0o777 == 0o700
    assert Start(programs).traced == 0
    programs.chmod(mode)
    before = [file.stat().st_mtime_ns for file in programs.iterdir()]
    assert Start(programs).traced == 1
    assert "chmod 700" in caplog.text
    assert [file.stat().st_mtime_ns for file in programs.iterdir()] == before


def test_a_place_that_cannot_be_looked_into_only_costs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read = Path.read_bytes

    def refuse(self: Path) -> bytes:
        if self.suffix == ".stablehlo":
            raise PermissionError(f"not yours: {self}")
        return read(self)

    Start(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert Start(tmp_path).run() == [0, 2, 4]
    assert "not yours" in caplog.text


def test_a_read_only_place_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> None:
        raise OSError(30, "read-only file system", str(self))

    Start(tmp_path)
    monkeypatch.setattr(Path, "touch", refuse)
    assert Start(tmp_path).traced == 0


@pytest.mark.parametrize("kept", [True, False])
def test_what_calls_a_program_does_not_hold_its_arguments(tmp_path: Path, kept: bool) -> None:
    programs: list[Any] = []
    array = jnp.ones(3)
    program = Program("one", lambda x: 2 * x, (array,), donated=0, result=0)
    KeptPrograms(tmp_path if kept else None, []).prepare(program, programs.append)()
    held = weakref.ref(array)
    del program, array
    assert held() is None
    assert programs[0](jnp.ones(3)).tolist() == [2, 2, 2]


def test_the_compile_cache_knows_a_kept_program(tmp_path: Path) -> None:
    with compile_cache(tmp_path / "jax"):
        first = Start(tmp_path / "one")
        known = sorted(file.name for file in (tmp_path / "jax").iterdir())
        second = Start(tmp_path / "one")
        assert sorted(file.name for file in (tmp_path / "jax").iterdir()) == known
        assert len(known) == 1
        assert first.run() == second.run() == [0, 2, 4]


@pytest.mark.parametrize("kept", [True, False])
def test_the_result_has_the_structure_that_is_said(tmp_path: Path, kept: bool) -> None:
    with pytest.raises(TypeError, match="double returns PyTreeDef"):
        Start(tmp_path if kept else None, result=(0, State(0, 0)))


def test_what_has_no_lasting_text_is_compiled_and_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def shown(one: jax.Array, state: State) -> Any:
        jax.debug.callback(lambda x: None, one)
        return one + 1, State(2 * state.cache, None)

    start = Start(tmp_path, call=shown)
    assert start.run() == [0, 2, 4]
    assert "double is not kept" in caplog.text
    assert not list(tmp_path.iterdir())


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


def test_only_device_routes_keep_programs() -> None:
    assert kept_for(object(), "config", Route.REFERENCE) is NOTHING_KEPT
    assert Start(None).traced == Start(None).traced == 1
    assert kept_for(object(), "config", Route.PALLAS_GPU) is not NOTHING_KEPT


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
