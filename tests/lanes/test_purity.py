"""The core stays a thing that can be read and tested without a model."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import tfjax.lanes

FILES = sorted(Path(tfjax.lanes.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_arrays_and_no_imports_from_elsewhere(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(jax|numpy)\b", source.replace("tfjax", "us"))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.module.startswith("tfjax.lanes.") or node.module.split(".")[0] in sys.stdlib_module_names
        elif isinstance(node, ast.Import):
            assert all(name.name in sys.stdlib_module_names for name in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_can_be_read_in_a_sitting(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
