"""Flags: every one is read, wrong values are named with their limits, and the device fills what was left open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfjax.options import ConfigError
from tfjax.train.small_settings import option
from tfjax.train.target_settings import FLAGS, Settings, parser, read_settings

OTHER = {
    "vocab": "300",
    "hidden": "512",
    "layers": "11",
    "attention": "1,9",
    "heads": "8",
    "kv_heads": "1",
    "dense_layers": "3",
    "inner": "640",
    "experts": "16",
    "picked": "3",
    "expert_inner": "72",
    "taps": "4",
    "context": "100",
    "rope_theta": "10000",
    "learning_rate": "0.001",
    "weight_decay": "0.2",
    "length": "768",
    "batch": "5",
    "steps": "70",
    "minutes": "1.5",
    "seed": "9",
    "steps_per_call": "3",
    "save_every": "30",
    "limit_s": "60",
}


def read(*flags: str) -> Settings:
    return read_settings(parser().parse(["--output", "o", *flags]))


def test_defaults() -> None:
    settings = read()
    assert {name: getattr(settings, name) for name in FLAGS} == {name: flag.default for name, flag in FLAGS.items()}
    assert (settings.output, settings.corpus, settings.also) == (Path("o"), Path("o/corpus"), ())
    assert not settings.prepare_only


@pytest.mark.parametrize("name", FLAGS)
def test_every_flag_sets_its_value(name: str) -> None:
    value = getattr(read(option(name), OTHER[name]), name)
    assert value == FLAGS[name].kind.parse(OTHER[name]) != FLAGS[name].default


def test_places_and_packages() -> None:
    settings = read("--corpus", "c", "--also", "jax", "--also", "numpy", "--prepare-only")
    assert (settings.corpus, settings.also, settings.prepare_only) == (Path("c"), ("jax", "numpy"), True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--vocab", "270"], "--vocab: '270' is not within 271"),
        (["--attention", "5,2"], "--attention: '5,2' is no rising list"),
        (["--attention", "2,x"], "is no list of layers"),
        (["--attention=-1"], "is no rising list"),
        (["--attention", "2,10"], "there is no layer 10; give numbers below --layers 10"),
        (["--hidden", "252", "--heads", "4"], "252 does not give 4 heads an even width; give a multiple of 8"),
        (["--kv-heads", "3"], "3 does not divide --heads 4"),
        (["--dense-layers", "11"], "11 is more than --layers 10"),
        (["--experts", "4", "--picked", "5"], "5 is more than --experts 4"),
        (["--steps", "5", "--minutes", "2"], "--minutes: 2 and --steps 5 exclude each other"),
    ],
)
def test_what_cannot_be_is_refused(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(*flags)
    assert message in str(refused.value)


def test_no_layer_has_to_attend() -> None:
    assert read("--attention", "").attention == ()


@pytest.mark.parametrize(("platform", "expected"), [("gpu", (1024, 64, 32)), ("cpu", (256, 8, 2))])
def test_the_device_fills_what_was_left_open(platform: str, expected: tuple[int, ...]) -> None:
    def chosen(*flags: str) -> tuple[Any, ...]:
        settings = read(*flags).for_device(platform)
        return settings.length, settings.batch, settings.steps_per_call

    assert chosen() == expected
    assert chosen("--length", "32", "--batch", "3", "--steps-per-call", "7") == (32, 3, 7)


def test_identity_is_what_decides_the_numbers() -> None:
    free = ("--limit-s", "5", "--save-every", "3", "--corpus", "x")
    assert read(*free).identity() == read().identity()
    decides = [name for name in FLAGS if name not in ("limit_s", "save_every")]
    assert all(read(option(name), OTHER[name]).identity() != read().identity() for name in decides)
    assert read("--also", "jax").identity() != read().identity()
