from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.tables import goals_of, main


def test_a_block_that_was_measured_again_counts_and_others_stay() -> None:
    first = {"goals": {"windows": {"1 rows": {"value": 9.0}}, "tax": {"1 rows": {"value": 2.0}}}}
    second = {"goals": {"windows": {"1 rows": {"value": 4.0}}}}
    assert goals_of([first, second]) == {"windows": {"1 rows": {"value": 4.0}}, "tax": {"1 rows": {"value": 2.0}}}


def test_each_file_gives_the_table_that_it_is_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"what": "decode", "job": "chat", "median": 2, "least": 1, "largest": 3}
    facts = {"peers": {"ratios": [row]}, "goals": {"goals": {"windows": {"16 rows": {"value": 4.2}}}}}
    files = []
    for name, values in facts.items():
        files.append(tmp_path / name)
        files[-1].write_text(json.dumps(values), "utf-8")
    assert main([str(file) for file in files]) == 0
    told = capsys.readouterr().out
    assert "| decode | chat | 2.00 | 1.00 to 3.00 |" in told
    assert "<= 4.30 ms | 4.20 ms | yes |" in told
