from __future__ import annotations

import argparse

import pytest

from tfjax.bench import flags, levels
from tfjax.kinds import Integer


def test_several_values_none_twice() -> None:
    assert flags.several(Integer(1, 9).parse)("4, 1,4") == (4, 1)
    with pytest.raises(argparse.ArgumentTypeError, match="'' is not a whole number"):
        flags.several(Integer(1, 9).parse)("1,,2")


def test_vllms_names_mean_the_same() -> None:
    ours = ("--tokens", "9", "--temperatures", "0.5", "--levels", "3", "--output", "f", "u")
    theirs = ("--output-len", "9", "--temperature", "0.5", "--max-concurrency", "3", "--result-filename", "f", "u")
    assert levels.parser().parse(ours) == levels.parser().parse(theirs)


def test_the_url_comes_from_either_place() -> None:
    for words in (["http://a"], ["--base-url", "http://a"]):
        made = levels.parser()
        assert flags.url_of(made, made.parse(words)) == "http://a"


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels.parser().parse(["u"]).api_key is None
    monkeypatch.setenv("TFJAX_API_KEY", "k")
    assert levels.parser().parse(["u"]).api_key == "k"
    assert levels.parser().parse(["u", "--api-key", "other"]).api_key == "other"


def test_options_have_no_address_and_no_key() -> None:
    found = flags.options(levels.parser().parse(["http://a", "--api-key", "k", "--output", "f", "--label", "x"]))
    assert set(found) == {
        "model", "tokens", "temperatures", "kinds", "seed", "stop_at_eos", "levels", "reps", "mixed", "alone", "serial",
        "stagger_ms", "num_warmups", "reuse_prompts",
    }  # fmt: skip
