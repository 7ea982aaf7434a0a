"""`tfjax quantize` on the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints.hf_files import write_directory
from tests.checkpoints.mlx_files import BASE, draw, moe_weights
from tfjax import quantize
from tfjax.checkpoints.affine import BITS, GROUP_SIZES
from tfjax.checkpoints.mlx_writer import Written
from tfjax.quantize import main, parser, report

MOE = {**BASE, "architectures": ["Lfm2MoeForCausalLM"]}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    odd = {"model.layers.1.self_attn.k_proj.weight": draw("odd", (8, 24))}
    return write_directory(tmp_path / "source", config=MOE, tensors=moe_weights() | odd)


def stated(target: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((target / "config.json").read_text())["quantization"]
    return found


def test_defaults(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(source), str(tmp_path / "target")]) == 0
    assert stated(tmp_path / "target") == {
        "group_size": 64,
        "bits": 4,
        "mode": "affine",
        "model.layers.1.feed_forward.gate": {"group_size": 64, "bits": 8},
        "model.layers.1.self_attn.k_proj": False,
    }
    printed = capsys.readouterr()
    assert "bits a weight, from" in printed.out
    assert (
        "groups of 64 do not fill their rows: 1 module\n  model.layers.1.self_attn.k_proj (rows of 24)" in printed.out
    )
    assert "tfjax: quantizing" in printed.err


def test_every_flag(source: Path, tmp_path: Path) -> None:
    flags = ["--bits", "6", "--group-size", "32", "--gate-bits", "16", "--embedding-bits", "8", "--offline"]
    assert main([str(source), str(tmp_path / "target"), *flags]) == 0
    found = stated(tmp_path / "target")
    assert (found["bits"], found["group_size"]) == (6, 32)
    assert found["model.embed_tokens"] == {"group_size": 32, "bits": 8}
    assert "model.layers.1.feed_forward.gate" not in found


def test_16_bits_keep_the_embedding(source: Path, tmp_path: Path) -> None:
    assert main([str(source), str(tmp_path / "target"), "--embedding-bits", "16", "--gate-bits", "4"]) == 0
    assert stated(tmp_path / "target").keys() == {"group_size", "bits", "mode", "model.layers.1.self_attn.k_proj"}


def test_existing_target_is_one_line(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "target").mkdir()
    assert main([str(source), str(tmp_path / "target")]) == 1
    assert "tfjax quantize: error: " in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--bits", "7"], ["--group-size", "16"], ["--gate-bits", "1"], ["--bits", "16"]])
def test_wrong_numbers(tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["a", "b", *flags])
    assert end.value.code == 2
    assert f"argument {flags[0]}: invalid choice" in capsys.readouterr().err


def test_choices_are_those_of_the_format() -> None:
    assert (quantize.BITS, quantize.GROUP_SIZES) == (BITS, GROUP_SIZES)


def test_help_says_every_default() -> None:
    text = " ".join(parser().format_help().split())
    for default in ("(default: 4)", "(default: 64, half a bit a weight)", "(default: 8)", "(default: as --bits)"):
        assert default in text


def test_many_kept_modules_are_shortened() -> None:
    written = Written(100, 50, 200, 100, {f"layers.{index}.q": 24 for index in range(9)})
    lines = report(Path("t"), 32, written).splitlines()
    assert lines[0] == "t: 0.0 MB, 8.00 bits a weight, from 0.0 MB; 50.0% of the weights are packed"
    assert lines[1] == "not packed, because groups of 32 do not fill their rows: 9 modules"
    assert lines[-1] == "  and 3 more"
    assert len(report(Path("t"), 32, Written(1, 1, 1, 1, {})).splitlines()) == 1


def test_no_jax(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom tfjax.quantize import main\n"
        f"code = main([{str(source)!r}, {str(tmp_path / 'target')!r}])\n"
        "assert 'jax' not in sys.modules\nsys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_killed_run_is_cleared_away_by_the_next(source: Path, tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom tfjax.checkpoints import mlx_writer\n"
        "from tfjax.quantize import main\n"
        "mlx_writer._copy_others = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"main([{str(source)!r}, {str(tmp_path / 'target')!r}])\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".*"))) == 1
    assert main([str(source), str(tmp_path / "target")]) == 0
    assert {entry.name for entry in tmp_path.iterdir()} == {"source", "target"}
    assert {entry.name for entry in (tmp_path / "target").iterdir()} == {"config.json", "model.safetensors"}
