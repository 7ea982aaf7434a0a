"""The command line of `tfjax train dspark`: defaults, limits, and what does not go together."""

from __future__ import annotations

import pytest

from tfjax.options import ConfigError
from tfjax.train.dspark_settings import FLAGS, Settings, parser, read_settings

PLACES = ("out", "--replies", "a", "b")


def settings(*flags: str) -> Settings:
    return read_settings(parser().parse([*PLACES, *flags]))


def test_places_and_defaults() -> None:
    found = settings("--held-out", "he", "--model", "m")
    assert [str(path) for path in (found.output, *found.replies, *found.held_out)] == ["out", "a", "b", "he"]
    assert (found.layers, found.block, found.taps, found.bits, found.steps) == (1, 7, 3, "16", 2000)
    assert found.minutes is None
    assert found.model == "m"


@pytest.mark.parametrize(("text", "value"), [("4", 4), ("1,14,27", (1, 14, 27)), ("5,", (5,))])
def test_taps_are_a_count_or_layers(text: str, value: object) -> None:
    assert settings("--taps", text).taps == value


@pytest.mark.parametrize("text", ["0", "1,1", "2,-1", "a", ","])
def test_taps_that_are_neither(text: str) -> None:
    with pytest.raises(ConfigError, match="--taps"):
        settings(f"--taps={text}")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--block", "32"), "--block: '32' is not within 1 to 31"),
        (("--bits", "4"), "--bits: '4' is none of 16, 8"),
        (("--qk-norm-order", "both"), "--qk-norm-order: 'both' is none of before_rope, after_rope, none"),
        (("--cross", "0", "--distance", "0"), "drafts learn nothing"),
        (("--compare-at", "two"), "--compare-at: 'two' is none of reply, one"),
        (("--greedy-temperature", "0"), "--greedy-temperature: '0' is not within"),
        (("--length", "32", "--anchors", "33"), "--anchors: 33 are more than the 32 tokens"),
        (("--steps", "5", "--minutes", "1"), "--steps and --minutes"),
        (("--replies", "out"), "OUT: 'out' is where the replies are"),
    ],
)
def test_what_cannot_be_is_refused(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(*flags)


def test_the_device_chooses_what_was_not_asked() -> None:
    assert (settings().for_device("gpu").batch, settings().for_device("cpu").batch) == (16, 4)
    assert settings("--batch", "7", "--steps-per-call", "3").for_device("gpu").batch == 7
    assert settings("--steps-per-call", "3").for_device("gpu").steps_per_call == 3


def test_the_identity_is_what_decides_the_numbers() -> None:
    plain = settings().identity()
    assert settings("--cross", "0", "--distance", "0", "--coupling", "1").coupling == 1
    for flags in (
        ("--start-from", "x"),
        ("--bits", "8"),
        ("--limit-s", "3"),
        ("--save-every", "8"),
        ("--held-out", "x"),
        ("--max-mib", "1"),
    ):
        assert settings(*flags).identity() == plain, flags
    assert settings("--seed", "3").identity() != plain
    assert settings("--minutes", "3").identity() != settings("--minutes", "4").identity()
    assert settings("--sharpen", "1.3").identity() == plain
    assert set(FLAGS) - set(plain) == {"bits", "sharpen", "max_mib", "save_every", "limit_s"}
