"""The environment of the other engines: Python 3.11 with torch, transformers and llama-cpp-python.

`python tests/goldens/environment.py [DIRECTORY]` makes it (default: `peers` in the user's cache directory of tfjax) and
prints its interpreter. llama-cpp-python is compiled, which takes minutes and a C++ compiler. Nothing of the product and
nothing in CI needs this: the other engines' results are committed beside the scripts that made them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = (
    "torch==2.13.0",
    "transformers==5.24.0",
    "accelerate==1.12.0",
    "gguf==0.19.0",
    "sentencepiece==0.2.3",
    "llama-cpp-python==0.3.36",
)
VERSION = "3.11"


def default_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tfjax" / "peers"


def interpreter(directory: Path) -> Path:
    """The environment's Python; raises FileNotFoundError with the command that makes it."""
    python = directory / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(f"{python} is missing; run `python {Path(__file__).name} {directory}` first")
    return python


def find_python() -> str:
    """A working Python 3.11: on PATH, or among pyenv's versions."""
    pyenv_root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        shutil.which(f"python{VERSION}"),
        *map(str, sorted(pyenv_root.glob(f"versions/{VERSION}.*/bin/python"), reverse=True)),
    ]
    check = (
        f"import sys, venv, ensurepip; raise SystemExit(sys.version_info[:2] != {tuple(map(int, VERSION.split('.')))})"
    )
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", check], capture_output=True, check=False).returncode == 0:
            return candidate
    raise FileNotFoundError(f"no working Python {VERSION} on PATH or in {pyenv_root}/versions")


def make(directory: Path) -> Path:
    """Makes the environment in `directory` and returns its interpreter."""
    if not (directory / "bin" / "python").exists():
        subprocess.run([find_python(), "-m", "venv", str(directory)], check=True)
    python = directory / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", *PACKAGES], check=True)
    return python


if __name__ == "__main__":
    print(make(Path(sys.argv[1]) if len(sys.argv) > 1 else default_directory()))
