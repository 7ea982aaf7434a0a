from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tfjax.engine import timing
from tfjax.engine.timing import RUNS, cached, code_version, measure

TABLE = {2: 1.0, 4: 2.0}
KEY = ["device", "model", "version"]


class Clock:
    """Runs take the milliseconds that a script gives, in order; the last goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: dict[int, list[float]]):
        self.now_s = 0.0
        self.script = {width: list(times) for width, times in script.items()}
        self.runs: list[int] = []
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now_s)

    def run(self, width: int) -> None:
        self.runs.append(width)
        times = self.script[width]
        self.now_s += (times.pop(0) if len(times) > 1 else times[0]) / 1000


def test_the_fastest_of_several_runs_counts_and_the_first_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {2: [0.5, 9, 7, 3, 8], 4: [0.5, 20, 11, 30]})
    table = measure((2, 4), clock.run)
    assert table == {2: pytest.approx(3), 4: pytest.approx(11)}
    assert clock.runs == [2] * (RUNS + 1) + [4] * (RUNS + 1)


def test_a_width_faster_than_a_narrower_one_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disturbed measurement of the narrow one is put right."""
    clock = Clock(monkeypatch, {2: [9.0] * (RUNS + 1) + [3.0], 4: [5.0]})
    assert measure((2, 4), clock.run) == {2: pytest.approx(3), 4: pytest.approx(5)}


def test_a_width_that_really_is_faster_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {2: [9.0], 4: [5.0], 8: [6.0]})
    assert measure((2, 4, 8), clock.run) == {2: pytest.approx(9), 4: pytest.approx(5), 8: pytest.approx(6)}
    assert len(clock.runs) <= 8 * (RUNS + 1)


def ask(directory: Path, key: list[str] = KEY, widths: tuple[int, ...] = (2, 4)) -> tuple[dict[int, float], int]:
    """The table, and how often it was measured."""
    calls = []

    def measure_now() -> dict[int, float]:
        calls.append(1)
        return dict(TABLE)

    table, is_new = cached(directory, key, widths, measure_now)
    assert is_new == bool(calls)
    return table, len(calls)


def test_a_table_is_measured_once(tmp_path: Path) -> None:
    assert ask(tmp_path / "new") == (TABLE, 1)
    assert ask(tmp_path / "new") == (TABLE, 0)
    assert [file.suffix for file in (tmp_path / "new").iterdir()] == [".json"]


@pytest.mark.parametrize("place", range(len(KEY)))
def test_every_part_of_the_key_counts(tmp_path: Path, place: int) -> None:
    ask(tmp_path)
    other = [*KEY[:place], "other", *KEY[place + 1 :]]
    assert ask(tmp_path, other)[1] == 1
    assert ask(tmp_path, KEY)[1] == 0


def test_other_widths_are_measured(tmp_path: Path) -> None:
    ask(tmp_path)
    assert ask(tmp_path, widths=(2, 4, 8))[1] == 1


BAD = [
    b"", b"{", b"[]", b"null", b"3", b'{"2": 1.0}', b'{"2": 0, "4": 1}', b'{"2": -1, "4": 1}', b'{"2": NaN, "4": 1}',
    b'{"2": Infinity, "4": 1}', b'{"a": 1}', b'{"2": "x", "4": 1}', b'{"2": null, "4": 1}', b"\xff\xfe\x00",
    b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("content", BAD, ids=lambda content: content[:16].decode("latin-1"))
def test_a_bad_file_only_costs_a_measurement(tmp_path: Path, content: bytes) -> None:
    ask(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    assert ask(tmp_path) == (TABLE, 1)
    assert json.loads(file.read_text()) == {"2": 1.0, "4": 2.0}
    assert ask(tmp_path)[1] == 0


def test_a_directory_that_cannot_be_written_only_costs_a_measurement(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "file").write_text("")
    for _ in range(2):
        assert ask(tmp_path / "file" / "timings") == (TABLE, 1)
    assert "not kept" in caplog.text


def test_the_code_version_follows_every_source(tmp_path: Path) -> None:
    package = ModuleType("package")
    package.__path__ = [str(tmp_path)]
    inner = tmp_path / "inner" / "deep.py"
    inner.parent.mkdir()
    inner.write_text("a = 1\n")
    before = code_version(package)
    assert code_version(package) == before
    inner.write_text("a = 2\n")
    assert code_version(package) not in {before, code_version()}
