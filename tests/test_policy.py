"""Rules of the repository that no linter knows."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_TRACKED_BYTES = 28 << 20
MAX_SOURCE_LINES = 300

# Written in two parts, so that the rules do not find themselves.
INDEX_WORDS = ["--index" + "-url", "--extra" + "-index-url", "--find" + "-links", "PIP_" + "INDEX_URL"]
REGISTRY_HOSTS = ["pypi" + ".org", "python" + "hosted.org", "npm" + "js.org", "conda" + ".anaconda.org"]
PLACES = ["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "/Us" + "ers/"]

UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
OTHER_ENGINES = {"torch", "transformers", "llama_cpp"}
BARE_FOLDERS = {"models", "lanes", "kernels"}
PRODUCT = ("tfjax/", "models/", "lanes/", "kernels/")
RUN_ELSEWHERE = ("tests/goldens/", "benchmarks/")


@cache
def tracked() -> tuple[Path, ...]:
    try:
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return tuple(path for name in listing.split("\0") if name and (path := ROOT / name).is_file())


@cache
def tracked_texts() -> tuple[tuple[str, str], ...]:
    texts = []
    for path in tracked():
        try:
            texts.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return tuple(texts)


@cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    return tuple((name, ast.parse(text, name)) for name, text in tracked_texts() if name.endswith(".py"))


def product_sources() -> Iterator[tuple[str, ast.Module]]:
    return ((name, tree) for name, tree in sources() if not name.startswith(RUN_ELSEWHERE))


def imported(tree: ast.Module) -> set[str]:
    """First parts of the names of all imported modules."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def lines_with(words: list[str]) -> list[str]:
    return [
        f"{name}:{number}: {word}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        for word in words
        if word in line
    ]


def test_the_checks_see_the_repository() -> None:
    names = {name for name, _ in tracked_texts()}
    assert {"pyproject.toml", "Makefile", "tfjax/cli.py", "tests/test_policy.py"} <= names


def test_no_package_index_is_named() -> None:
    assert not lines_with(INDEX_WORDS + REGISTRY_HOSTS)


def test_no_path_of_a_machine_is_named() -> None:
    assert not lines_with(PLACES)


def test_imports_use_the_installed_names() -> None:
    wrong = [f"{name}: {sorted(names)}" for name, tree in sources() if (names := imported(tree) & BARE_FOLDERS)]
    assert not wrong


def test_nothing_unpickles() -> None:
    wrong = [f"{name}: {sorted(names)}" for name, tree in sources() if (names := imported(tree) & UNPICKLERS)]
    assert not wrong


def test_numpy_never_unpickles() -> None:
    wrong = []
    for name, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                allowed = isinstance(node.value, ast.Constant) and node.value.value is False
                wrong += [] if allowed else [f"{name}:{node.value.lineno}"]
    assert not wrong


def test_no_other_engine_is_imported() -> None:
    wrong = [
        f"{name}: {sorted(names)}" for name, tree in product_sources() if (names := imported(tree) & OTHER_ENGINES)
    ]
    assert not wrong


def test_checkpoints_text_and_lanes_are_free_of_jax() -> None:
    for name, tree in sources():
        if name.startswith(("tfjax/checkpoints/", "tfjax/text/")):
            assert not imported(tree) & {"jax", "jaxlib", "flax"}, name
        if name.startswith("lanes/"):
            assert not imported(tree) & {"jax", "jaxlib", "flax", "numpy", "ml_dtypes"}, name


def test_tracked_files_are_small_together() -> None:
    total = sum(path.stat().st_size for path in tracked())
    assert total < MAX_TRACKED_BYTES, f"{total / 2**20:.1f} MiB"


def test_a_source_file_is_read_in_a_sitting() -> None:
    long = {
        name: lines
        for name, text in tracked_texts()
        if name.endswith(".py") and name.startswith(PRODUCT) and (lines := len(text.splitlines())) > MAX_SOURCE_LINES
    }
    assert not long


def test_every_product_file_says_what_it_is_for() -> None:
    for name, tree in sources():
        if name.startswith(PRODUCT):
            assert ast.get_docstring(tree), f"{name} has no docstring"


def test_no_print_in_libraries() -> None:
    """Only the commands talk to a person; everything else logs or returns."""
    commands = ("serve", "generate", "info", "doctor", "quantize", "cli", "research/order")
    commands += ("train/cli", "train/command", "train/continuations", "train/answers")
    commands += ("bench/exact", "bench/levels", "bench/matrix")
    allowed = {f"tfjax/{name}.py" for name in (*commands, "terminal", "bench/text")} | {"kernels/contract/__main__.py"}
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in sources()
        if name.startswith(PRODUCT) and not name.startswith("tfjax/server/") and name not in allowed
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not wrong
