from __future__ import annotations

import sys

import pytest

from benchmarks.blocks import Blocks
from benchmarks.goals import compiling
from benchmarks.goals.compiling import measure_compiling
from benchmarks.goals.table import GOALS, measured

CHILD = """
import json, os, pathlib, sys
caches = [pathlib.Path(os.environ[name]) for name in ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME")]
warm = all(cache.exists() for cache in caches)
for cache in caches: cache.mkdir(parents=True, exist_ok=True)
print("a line of XLA")
print(json.dumps({"value": 1.0 if warm else 9.0, "phases_s": {}, "programs": 1, "words": sys.argv[1:]}))
"""


def test_each_start_has_a_cache_of_its_own_that_the_second_run_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "CHILD", (sys.executable, "-c", CHILD))
    blocks = Blocks(1e4)
    measure_compiling(blocks, "reference", ["--tiny"])
    goals = [goal for goal in GOALS if goal.block == "compiling"]
    assert [measured({"compiling": blocks.found}, goal) for goal in goals] == [9.0, 1.0, 9.0, 1.0]
    words = {name: one["words"] for name, one in blocks.found.items()}
    assert words["target, cold"] == ["--kernels", "reference", "--tiny"]
    assert words["target and drafter, warm"] == ["--drafter", "--kernels", "reference", "--tiny"]


def test_one_that_fails_leaves_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "CHILD", (sys.executable, "-c", "raise SystemExit('no such kernel')"))
    blocks = Blocks(1e4)
    measure_compiling(blocks, "auto")
    assert len(blocks.failed) == 4
    assert "no such kernel" in blocks.found["target, cold"]["error"]
