from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import Misbehave, Serve
from tests.bench.scripted import lying
from tfjax.bench import main

FEW = ("--tokens", "16", "--num-prompts", "4", "--kinds", "code,list")


def run(url: str, file: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["exact", url, "--output", str(file), *FEW, *words])
    return code, json.loads(file.read_text())


def test_all_equal(serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """4 tokens a round, all drafted by the fake's count: 16 drafted and 8 kept a reply, 4 rounds."""
    server = serve()
    code, facts = run(server.url, tmp_path / "e.json")
    assert (code, facts["made"], facts["equal"], facts["differences"]) == (0, 16, 16, [])
    assert facts["counting_tokens"] == 16 * (4 + 8)
    assert [row["replies"] for row in facts["rows"]] == [
        f"{kind} T={temperature}, {way}"
        for kind in ("code", "list")
        for temperature in (0, 1)
        for way in ("4 at once", "alone")
    ]
    out = capsys.readouterr().out
    assert "16 of 16 drafted replies equal the serial reference; 192 counting tokens compared" in out
    assert "code T=0, alone: by depth 32/16/16" in out
    drafts = [generation.draft for generation in server.engine.submitted]
    assert (drafts.count(False), drafts.count(True)) == (8, 16)


def test_more_repetitions_draw_with_other_seeds(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    code, facts = run(server.url, tmp_path / "e.json", "--reps", "3", "--max-concurrency", "1", "--seed", "7")
    assert (code, facts["made"]) == (0, 4 + 3 * 4)
    seeds = [asked.sampling.seed for asked in server.engine.submitted if asked.sampling.temperature and asked.draft]
    assert seeds == [7, 8, 9, 10, 1007, 1008, 1009, 1010, 2007, 2008, 2009, 2010]


def test_a_difference_is_shown_and_fails(serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, facts = run(serve(lying).url, tmp_path / "e.json", "--temperatures", "0", "--max-concurrency", "2")
    assert (code, facts["made"], facts["equal"]) == (1, 8, 0)
    assert len(facts["differences"]) == 8
    out = capsys.readouterr().out
    assert "code 0 T=0 seed 0, alone: first difference at character 5: serial '" in out
    assert "0 of 8 drafted replies equal" in out


def test_replies_without_hash_prove_nothing(
    misbehave: Misbehave, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = misbehave(b'data: {"choices": [{"index": 0, "text": "word "}]}\n\n' * 3 + b"data: [DONE]\n\n")
    code, facts = run(url, tmp_path / "e.json", "--kinds", "code")
    assert (code, facts["equal"], facts["differences"]) == (1, 0, [])
    assert "16 replies had no token hash, so nothing is proved" in capsys.readouterr().err


def test_too_few_counting_tokens_fail(serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = serve().url
    assert run(url, tmp_path / "e.json", "--least", "192")[0] == 0
    assert run(url, tmp_path / "e.json", "--least", "193")[0] == 1
    assert "192 tokens count and --least asks for 193; raise --reps" in capsys.readouterr().err
