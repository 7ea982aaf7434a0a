"""No character is broken by the cut between two tokens, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjax.text.detokenizer import Detokenizer


class Pieces:
    """A tokenizer whose token i is the i-th piece."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]


def run(pieces: list[bytes]) -> list[str]:
    detokenizer = Detokenizer(Pieces(pieces))
    return [*(detokenizer.push(token) for token in range(len(pieces))), detokenizer.flush()]


@given(st.lists(st.binary(max_size=5), max_size=12))
def test_joined_pieces_equal_the_whole_for_any_bytes(pieces: list[bytes]) -> None:
    assert "".join(run(pieces)) == b"".join(pieces).decode("utf-8", "replace")


@given(text=st.text(max_size=12).filter(lambda text: "\ufffd" not in text), size=st.integers(1, 5))
def test_valid_text_never_shows_a_replacement_character(text: str, size: int) -> None:
    data = text.encode()
    shown = run([data[start : start + size] for start in range(0, len(data), size)])
    assert "".join(shown) == text
    assert not any("\ufffd" in piece for piece in shown)


@pytest.mark.parametrize("text", ["😀", "漢字", "👨‍👩‍👧‍👦", "é"])
def test_split_characters_wait_for_their_last_byte(text: str) -> None:
    shown = run([bytes([byte]) for byte in text.encode()])
    assert [piece for piece in shown if piece] == list(text)


def test_end_within_a_character_shows_one_replacement() -> None:
    assert run([b"a", b"\xf0\x9f\x98"]) == ["a", "", "\ufffd"]


def test_invalid_byte_shows_one_replacement_when_it_is_certain() -> None:
    assert run([b"\xff", b"a"]) == ["\ufffd", "a", ""]
    assert run([b"\xe6", b"a"]) == ["", "\ufffda", ""]


def test_hidden_tokens_do_not_break_a_character() -> None:
    assert run([b"\xc3", b"", b"\xa9"]) == ["", "", "é", ""]


def test_flush_is_empty_the_second_time() -> None:
    detokenizer = Detokenizer(Pieces([b"\xc3"]))
    detokenizer.push(0)
    assert (detokenizer.flush(), detokenizer.flush()) == ("\ufffd", "")
