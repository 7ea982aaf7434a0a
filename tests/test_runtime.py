"""What is set for jax, and what of the user's environment is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfjax.runtime import GPU_GRAPHS, NUMERIC_VARIABLES, prepare_runtime


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_every_program_is_cached_in_the_users_cache_directory(cache: Path) -> None:
    environ: dict[str, str] = {}
    runtime = prepare_runtime(environ)
    assert runtime.compile_cache is not None
    assert runtime.compile_cache.is_relative_to(cache / "tfjax" / "jax")
    assert environ == dict(runtime.set)
    assert environ["JAX_COMPILATION_CACHE_DIR"] == str(runtime.compile_cache)
    assert environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"
    assert environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] == "-1"
    assert runtime.lines() == [f"compile cache: {runtime.compile_cache}"]


def test_only_the_owner_may_write_compiled_programs() -> None:
    runtime = prepare_runtime({})
    assert runtime.compile_cache is not None
    assert runtime.compile_cache.stat().st_mode & 0o077 == 0


def test_what_the_user_set_stays(tmp_path: Path) -> None:
    environ = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "mine"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "5",
        "XLA_CLIENT_MEM_FRACTION": "0.3",
        "JAX_PLATFORMS": "cpu",
    }
    before = dict(environ)
    runtime = prepare_runtime(environ)
    assert runtime.compile_cache == tmp_path / "mine"
    assert before.items() <= environ.items()
    assert set(runtime.set) == {"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"}


def test_the_older_memory_variable_is_not_joined_by_the_newer() -> None:
    environ = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}
    prepare_runtime(environ)
    assert "XLA_CLIENT_MEM_FRACTION" not in environ


@pytest.mark.parametrize("name", NUMERIC_VARIABLES)
def test_variables_that_change_numbers_are_taken_out_and_named(name: str) -> None:
    environ = {name: "1"}
    runtime = prepare_runtime(environ)
    assert name not in environ
    assert runtime.ignored == (f"{name}=1",)
    assert f"{name}=1" in runtime.lines()[1]


def test_of_xla_flags_only_harmless_ones_stay() -> None:
    flags = "--xla_dump_to=d --xla_cpu_enable_fast_math=true --xla_force_host_platform_device_count=2"
    environ = {"XLA_FLAGS": flags}
    runtime = prepare_runtime(environ)
    assert environ["XLA_FLAGS"] == "--xla_dump_to=d --xla_force_host_platform_device_count=2"
    assert runtime.ignored == ("--xla_cpu_enable_fast_math=true",)


def test_on_cuda_loops_join_the_graphs_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfjax.runtime.find_spec", lambda name: name == "jax_cuda13_plugin" or None)
    environ = {"XLA_FLAGS": "--xla_dump_to=d"}
    prepare_runtime(environ)
    assert environ["XLA_FLAGS"] == f"--xla_dump_to=d {GPU_GRAPHS}"
    own = {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}
    assert prepare_runtime(own).ignored == ()
    assert own["XLA_FLAGS"] == "--xla_gpu_enable_command_buffer="


def test_other_platforms_get_no_flags_that_they_may_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfjax.runtime.find_spec", lambda name: None)
    environ: dict[str, str] = {}
    prepare_runtime(environ)
    assert "XLA_FLAGS" not in environ


def test_nothing_that_it_sets_changes_numbers() -> None:
    runtime = prepare_runtime({})
    assert not set(runtime.set) & {*NUMERIC_VARIABLES, "XLA_FLAGS", "JAX_PLATFORMS"}


def test_without_a_directory_it_goes_on_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    environ: dict[str, str] = {}
    runtime = prepare_runtime(environ)
    assert runtime.compile_cache is None
    assert "JAX_COMPILATION_CACHE_DIR" not in environ
    assert "every start compiles again" in runtime.lines()[0]


def test_too_late_is_an_error() -> None:
    code = "import sys\nsys.modules['jax'] = sys\nfrom tfjax.runtime import prepare_runtime\nprepare_runtime()\n"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 1
    assert "prepare_runtime came after the first import of jax" in done.stderr


def test_jax_takes_what_was_set(cache: Path) -> None:
    code = (
        "import sys\nfrom tfjax.runtime import prepare_runtime\nruntime = prepare_runtime()\n"
        "assert 'jax' not in sys.modules\nimport jax\njax.jit(lambda x: x + 1)(1.0)\n"
        "assert jax.config.jax_compilation_cache_dir == str(runtime.compile_cache)\n"
        "assert not jax.config.jax_enable_x64\n"
    )
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    environ = {**keep, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert any(file.is_file() for file in cache.rglob("*-cache")), "no compiled program was kept"
