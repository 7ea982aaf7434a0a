from __future__ import annotations

import threading

import pytest

from tfjax.engine.compiling import compile_all


def test_every_job_is_done_and_shown() -> None:
    done: list[int] = []
    shown: list[tuple[str, float]] = []
    jobs = [lambda number=number: done.append(number) for number in range(4)]
    compile_all(jobs, "compiling", lambda phase, share: shown.append((phase, share)))
    assert sorted(done) == [0, 1, 2, 3]
    assert shown == [("compiling", share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]


def test_a_failed_job_fails_the_whole() -> None:
    def fail() -> None:
        raise RuntimeError("does not compile")

    with pytest.raises(RuntimeError, match="does not compile"):
        compile_all([fail, lambda: None], "compiling", lambda phase, share: None)


def test_jobs_run_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    meeting = threading.Barrier(2, timeout=10)
    compile_all([meeting.wait, meeting.wait], "compiling", lambda phase, share: None)
