from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tfjax.engine.compiling import compile_all
from tfjax.engine.kept_programs import Compile


def nowhere(phase: str, share: float) -> None:
    del phase, share


def test_every_program_is_compiled_and_shown() -> None:
    done: list[int] = []
    shown: list[tuple[str, float]] = []

    def program(number: int) -> Callable[[], Compile]:
        return lambda: lambda: done.append(number)

    compile_all([program(0), program(1)], "compiling", lambda phase, share: shown.append((phase, share)))
    assert sorted(done) == [0, 1]
    assert shown == [("compiling", share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]


@pytest.mark.parametrize("step", ["lowers", "compiles"])
def test_a_failed_program_fails_the_whole(step: str) -> None:
    def fail() -> None:
        raise RuntimeError("does not compile")

    def fail_early() -> Compile:
        raise RuntimeError("does not compile")

    failing = fail_early if step == "lowers" else lambda: fail
    with pytest.raises(RuntimeError, match="does not compile"):
        compile_all([failing, lambda: lambda: None], "compiling", nowhere)


def test_programs_compile_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    meeting = threading.Barrier(2, timeout=10)

    def meet() -> None:
        meeting.wait()

    compile_all([lambda: meet, lambda: meet], "compiling", nowhere)


def test_programs_are_lowered_in_order_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of kernels count what was lowered before; in another order the compile cache would not know a program."""
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    lowered: list[tuple[int, int]] = []

    def program(number: int) -> Callable[[], Compile]:
        def lower() -> Compile:
            lowered.append((number, threading.get_ident()))
            return lambda: None

        return lower

    compile_all([program(number) for number in range(20)], "compiling", nowhere)
    assert lowered == [(number, threading.get_ident()) for number in range(20)]
