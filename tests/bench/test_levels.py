from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import Misbehave, Serve
from tests.bench.scripted import lying
from tfjax.bench import main

FEW = ("--tokens", "24", "--levels", "1,3", "--reps", "2", "--kinds", "code,chat", "--num-warmups", "0")


def run(url: str, file: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["concurrent", url, "--output", str(file), *words])
    return code, json.loads(file.read_text())


def test_the_report(serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(round_s=0.004)
    code, facts = run(
        server.url, tmp_path / "c.json", *FEW, "--mixed", "--alone", "--serial", "--label", "here", "--seed", "5"
    )
    assert code == 0
    cells = {(cell["kind"], cell["temperature"], cell["streams"]): cell for cell in facts["cells"]}
    assert set(cells) == {(k, t, n) for k in ("code", "chat") for t in (0, 1) for n in (1, 3)} | {("mixed", None, 3)}
    for cell in cells.values():
        assert cell["equal"] == {"repeated": True, "alone": True, "serial": True}
        assert [len(run) for run in cell["runs"]] == [cell["streams"]] * 2
        assert all(reply["tokens"] == 24 for run in cell["runs"] for reply in run)
    assert [reply["seed"] for reply in cells["chat", 1, 3]["runs"][1]] == [5, 6, 7]
    assert len({(reply["kind"], reply["temperature"]) for reply in cells["mixed", None, 3]["runs"][0]}) == 3
    lone = cells["code", 0, 1]
    assert 400 < lone["stream_tps"] < 1500  # 4 tokens in 4 ms, less the first
    assert lone["steady_tps"] == pytest.approx(lone["stream_tps"], rel=0.5)
    assert cells["code", 0, 3]["aggregate_tps"] > lone["aggregate_tps"]
    assert lone["drafts"]["counting_tokens"] == 2 * (6 + 12)
    assert (facts["label"], facts["command"], facts["options"]["tokens"]) == ("here", "tfjax bench concurrent", 24)
    assert facts["server"]["engine"] == {"arithmetic": "scripted", "lanes": 8}
    assert {"processor", "cores", "versions"} <= set(facts["client"])
    assert "tfjax" in facts["client"]["versions"]
    assert server.url not in json.dumps(facts)
    table = capsys.readouterr().out.splitlines()
    assert table[0].startswith("cell")
    assert table[0].endswith("worst TTFT ms  loops  repeated  alone  serial")
    assert table[1].startswith("code T=0 x1")
    assert len(table) == 1 + len(cells)


def test_prompts_are_fresh_unless_asked_otherwise(serve: Serve, tmp_path: Path) -> None:
    """Each request has a salt of its own, so that it shares no prompt with another."""
    server = serve()
    assert run(server.url, tmp_path / "c.json", *FEW)[0] == 0
    salts = [generation.cache_salt for generation in server.engine.submitted]
    assert len(set(salts)) == len(salts)
    server.engine.submitted.clear()
    assert run(server.url, tmp_path / "c.json", *FEW, "--reuse-prompts")[0] == 0
    assert len({generation.cache_salt for generation in server.engine.submitted}) == 1


def test_replies_go_on_past_their_end_unless_asked_otherwise(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    assert run(server.url, tmp_path / "c.json", *FEW)[0] == 0
    assert all(generation.ignore_eos for generation in server.engine.submitted)
    assert run(server.url, tmp_path / "c.json", *FEW, "--stop-at-eos")[0] == 0
    assert not server.engine.submitted[-1].ignore_eos


@pytest.mark.parametrize(
    ("words", "more"), [((), 0), (("--alone",), 3), (("--serial",), 3), (("--alone", "--serial"), 6)]
)
def test_each_reference_is_made_once_for_all_levels(
    words: tuple[str, ...], more: int, serve: Serve, tmp_path: Path
) -> None:
    server = serve()
    _, facts = run(server.url, tmp_path / "c.json", *FEW, "--kinds", "code", "--temperatures", "0", *words)
    assert len(server.engine.submitted) == 2 * (1 + 3) + more
    assert [generation.draft for generation in server.engine.submitted].count(False) == (
        3 if "--serial" in words else 0
    )
    equal = facts["cells"][1]["equal"]
    assert (equal["alone"], equal["serial"]) == ("--alone" in words or None, "--serial" in words or None)


def test_different_tokens_are_named_and_fail(serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, facts = run(serve(lying).url, tmp_path / "c.json", *FEW, "--serial", "--alone", "--temperatures", "0")
    assert code == 1
    assert facts["cells"][0]["equal"] == {"repeated": True, "alone": True, "serial": False}
    assert "tokens differ: code T=0 x1" in capsys.readouterr().out


def test_without_hashes_equality_is_unknown(
    misbehave: Misbehave, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[bytes] = []
    url = misbehave(b'data: {"choices": [{"index": 0, "text": "word "}]}\n\n' * 3 + b"data: [DONE]\n\n", asked=asked)
    code, facts = run(url, tmp_path / "c.json", *FEW, "--kinds", "code", "--alone", "--serial")
    assert code == 0
    assert {value for cell in facts["cells"] for value in cell["equal"].values()} == {None}
    assert facts["server"] == {"model": "m", "engine": None, "settings": None}
    assert "it is not tfjax, so equality stays unknown" in capsys.readouterr().err
    assert not any(b"cache_salt" in body for body in asked), "others may not know this field"


def test_what_was_not_compared_is_unknown(serve: Serve, tmp_path: Path) -> None:
    _, facts = run(serve().url, tmp_path / "c.json", *FEW, "--reps", "1")
    assert facts["cells"][0]["equal"] == {"repeated": None, "alone": None, "serial": None}
    assert "serial" not in facts["cells"][0]


def test_streams_start_staggered(serve: Serve, tmp_path: Path) -> None:
    words = ("--kinds", "code", "--temperatures", "0", "--levels", "3", "--reps", "1", "--tokens", "4")
    times = []
    server = serve()
    submit = server.engine.submit

    def timed(*arguments: Any) -> Any:
        import time

        times.append(time.monotonic())
        return submit(*arguments)

    server.engine.submit = timed  # type: ignore[method-assign]
    run(server.url, tmp_path / "c.json", *words, "--num-warmups", "0", "--stagger-ms", "200")
    assert times[2] - times[0] > 0.2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give the server's URL once"),
        (("a", "--base-url", "b"), "give the server's URL once"),
        (("a", "--levels", "0"), "argument --levels/--max-concurrency: '0' is not within 1 to 256"),
        (("a", "--levels", "1,x"), "'x' is not a whole number"),
        (("a", "--kinds", "poem"), "'poem' is no kind of prompt; give one or more of code, chat, edit"),
        (("a", "--tokens", "1"), "'1' is not within 2 to"),
        (("a", "--temperatures", "hot"), "'hot' is not a number"),
        (("a", "--stagger", "1"), "unrecognized arguments: --stagger 1 (did you mean --stagger-ms?)"),
    ],
)
@pytest.mark.parametrize("command", ["concurrent"])
def test_wrong_usage(command: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, *words])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_report_that_cannot_be_written_fails_at_once(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve()
    assert main(["concurrent", server.url, "--output", str(tmp_path / "absent" / "c.json")]) == 1
    assert "is no directory; make it, or give another file" in capsys.readouterr().err
    assert not server.engine.submitted
