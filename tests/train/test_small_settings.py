"""Flags: every one is read, wrong values are named with their limits, and the device fills what was left open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfjax.options import ConfigError
from tfjax.train.small_settings import FLAGS, Settings, option, parser, read_settings

PLACES = ("--replies", "r", "--output", "o")
OTHER = {
    "layers": "5",
    "hidden": "512",
    "inner": "640",
    "heads": "8",
    "kv_heads": "4",
    "draft_vocab": "0",
    "head": "own",
    "max_mib": "7.5",
    "teacher": "none",
    "teacher_weight": "0.5",
    "prompt_weight": "0",
    "learning_rate": "0.001",
    "weight_decay": "0.1",
    "length": "1024",
    "batch": "5",
    "epochs": "1.5",
    "seed": "9",
    "steps_per_call": "3",
    "save_every": "30",
    "limit_s": "60",
}


def read(*flags: str) -> Settings:
    return read_settings(parser().parse([*PLACES, *flags]))


def test_defaults() -> None:
    settings = read()
    assert {name: getattr(settings, name) for name in FLAGS} == {name: flag.default for name, flag in FLAGS.items()}
    assert (settings.replies, settings.output, settings.measure, settings.model) == ((Path("r"),), Path("o"), (), None)


@pytest.mark.parametrize("name", FLAGS)
def test_every_flag_sets_its_value(name: str) -> None:
    value = getattr(read(option(name), OTHER[name]), name)
    assert value != FLAGS[name].default
    assert str(value) in (OTHER[name], f"{OTHER[name]}.0")


def test_paths_and_model() -> None:
    settings = read("--measure", "a", "--measure", "b", "--model", "m")
    assert (settings.measure, settings.model) == ((Path("a"), Path("b")), "m")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--layers", "0"), "--layers: '0' is not within 1 to 64"),
        (("--head", "tied"), "--head: 'tied' is none of projected, own"),
        (("--max-mib", "lots"), "--max-mib: 'lots' is not a number"),
        (("--hidden", "104", "--heads", "8"), "--hidden: 104 does not give 8 heads an even width; .* multiple of 16"),
        (("--heads", "4", "--kv-heads", "3"), "--kv-heads: 3 does not divide --heads 4"),
        (("--output", "r"), "--output: 'r' is where the replies are"),
    ],
)
def test_wrong_values_are_named_with_what_is_allowed(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(*flags)


@pytest.mark.parametrize(
    ("platform", "expected"), [("gpu", ("online", 64, 16)), ("cpu", ("none", 8, 4)), ("METAL", ("none", 8, 4))]
)
def test_the_device_fills_what_was_left_open(platform: str, expected: tuple[Any, ...]) -> None:
    settings = read().for_device(platform)
    assert (settings.teacher, settings.batch, settings.steps_per_call) == expected


def test_what_was_given_stays_on_every_device() -> None:
    settings = read("--teacher", "none", "--batch", "7", "--steps-per-call", "2").for_device("gpu")
    assert (settings.teacher, settings.batch, settings.steps_per_call) == ("none", 7, 2)


def test_a_runs_identity_is_all_that_decides_its_numbers() -> None:
    free = {"max_mib", "limit_s", "save_every"}
    first = read().for_device("cpu").identity()
    for name in FLAGS:
        changed = read(option(name), OTHER[name]).for_device("gpu" if name == "teacher" else "cpu").identity()
        if name == "teacher":
            changed = {**first, "teacher": read("--teacher", "online").for_device("cpu").identity()["teacher"]}
        assert (changed != first) == (name not in free), name
    assert read("--model", "m").for_device("cpu").identity() != first
    assert read("--measure", "m").for_device("cpu").identity() == first


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse(["--help"])
    shown = capsys.readouterr().out
    assert all(option(name) in shown for name in FLAGS)
