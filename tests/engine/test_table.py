from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.server.byte_tokenizer import ByteTokenizer
from tfjax.engine.table import FORMAT, Order, TableError, keys_of, load_table, table_bytes, vocabulary_hash
from tfjax.lanes.table_drafts import TableDrafts, key_of

TOKENIZER: Any = ByteTokenizer()
VOCABULARY = vocabulary_hash(TOKENIZER)


def order(rows: list[tuple[tuple[int, ...], int, int]], kind: type = np.uint16) -> Order:
    contexts, tokens, chances = zip(*rows, strict=True)
    return Order(np.array(contexts, kind), np.array(tokens, kind), np.array(chances, np.uint8))


ORDERS = [
    order([((1,), 2, 255), ((3,), 4, 128), ((250,), 259, 51)]),
    order([((1, 1), 5, 255), ((1, 3), 6, 255), ((2, 0), 7, 255)]),
    order([((9, 1, 3), 8, 204)]),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "table.safetensors"
    file.write_bytes(table_bytes(ORDERS, VOCABULARY))
    return file


def resaved(path: Path, **changes: Any) -> None:
    """Write the table again with some tensors changed; None takes one out."""
    tensors = {**load_file(path), **changes}
    save_file(
        {name: value for name, value in tensors.items() if value is not None},
        path,
        {"format": FORMAT, "vocabulary": VOCABULARY},
    )


def test_a_written_table_speaks(path: Path) -> None:
    table = load_table(path, TOKENIZER)
    for context, answer in [
        ((9, 1, 3), (8, 0.8)),
        ((0, 1, 3), (6, 1.0)),
        ((0, 0, 3), (4, 128 / 255)),
        ((7, 7, 250), (259, 0.2)),
        ((7, 2, 0), (7, 1.0)),
        ((7, 7, 7), None),
    ]:
        assert table.after(key_of(context)) == answer
    drafts = TableDrafts(table)
    drafts.extend([1])
    assert drafts.propose(4).tokens == (2,)


@pytest.mark.parametrize("longest", [1, 2])
def test_a_table_may_know_short_contexts_only(path: Path, longest: int) -> None:
    path.write_bytes(table_bytes(ORDERS[:longest], VOCABULARY))
    answer = load_table(path, TOKENIZER).after(key_of((9, 1, 3)))
    assert answer == ((6, 1.0) if longest == 2 else (4, 128 / 255))


def test_keys_are_those_of_the_drafter() -> None:
    contexts = np.random.default_rng(0).integers(0, (1 << 21) - 1, (50, 3))
    assert keys_of(contexts).tolist() == [key_of(row) for row in contexts.tolist()]
    assert keys_of(contexts.astype(np.uint32)).tolist() == keys_of(contexts).tolist()


@pytest.mark.parametrize("content", [None, b"", b"text", b"\xff" * 64])
def test_what_is_no_file_of_tensors_is_refused(path: Path, content: bytes | None) -> None:
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(TableError, match=r"table.safetensors cannot be read as a table.*tfjax train table"):
        load_table(path, TOKENIZER)


def test_a_cut_file_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TableError, match="cannot be read"):
        load_table(path, TOKENIZER)


def test_another_vocabulary_is_refused(path: Path) -> None:
    class Other(ByteTokenizer):
        def token_bytes(self, token: int) -> bytes:
            return b"x" if token == 7 else super().token_bytes(token)

    other: Any = Other()
    with pytest.raises(TableError, match=r"another vocabulary; make one for this model"):
        load_table(path, other)


def test_a_token_that_is_special_elsewhere_is_another_vocabulary() -> None:
    class Plain(ByteTokenizer):
        def is_special(self, token: int) -> bool:
            return False

    plain: Any = Plain()
    assert vocabulary_hash(plain) != VOCABULARY


@pytest.mark.parametrize("metadata", [None, {"format": "tfjax-table-2", "vocabulary": VOCABULARY}])
def test_another_format_is_refused(path: Path, metadata: dict[str, str] | None) -> None:
    save_file(load_file(path), path, metadata)
    with pytest.raises(TableError, match=r"is no table: its format is"):
        load_table(path, TOKENIZER)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"contexts_1": np.array([[3], [1], [250]], np.uint16)}, "contexts of 1 tokens are not in rising order"),
        ({"contexts_2": np.array([[1, 1], [1, 1], [2, 0]], np.uint16)}, "contexts of 2 tokens are not in rising order"),
        ({"contexts_1": np.array([[1], [3], [260]], np.uint16)}, "token 260 is not in the vocabulary of 260"),
        ({"tokens_3": np.array([9999], np.uint16)}, "token 9999 is not in the vocabulary of 260"),
        ({"tokens_1": np.array([1, 2], np.uint16)}, "do not go together"),
        ({"chances_1": np.array([1, 2], np.uint8)}, "do not go together"),
        ({"contexts_2": np.array([[1], [2], [3]], np.uint16)}, "do not go together"),
        ({"contexts_1": np.array([1, 3, 250], np.uint16)}, "do not go together"),
        ({"tokens_1": np.array([2, 4, 5], np.int32)}, "number formats"),
        ({"contexts_1": np.array([[1.0], [3.0], [250.0]], np.float32)}, "number formats"),
        ({"chances_1": np.array([1, 1, 1], np.uint16)}, "number formats"),
        ({"chances_2": None}, "holds"),
        ({"contexts_2": None, "tokens_2": None, "chances_2": None}, "holds"),
        ({"extra": np.zeros(1, np.uint8)}, "holds"),
        (
            {
                "contexts_4": np.zeros((1, 4), np.uint16),
                "tokens_4": np.zeros(1, np.uint16),
                "chances_4": np.zeros(1, np.uint8),
            },
            "holds",
        ),
    ],
)
def test_what_does_not_fit_is_refused(path: Path, changes: dict[str, Any], words: str) -> None:
    resaved(path, **changes)
    with pytest.raises(TableError, match=words):
        load_table(path, TOKENIZER)


def test_a_file_without_tensors_is_refused(path: Path) -> None:
    save_file({}, path, {"format": FORMAT, "vocabulary": VOCABULARY})
    with pytest.raises(TableError, match="holds"):
        load_table(path, TOKENIZER)


def test_a_huge_file_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfjax.engine.table.MOST_BYTES", 100)
    with pytest.raises(TableError, match=r"a table has at most 100"):
        load_table(path, TOKENIZER)


def test_an_empty_order_is_fine(path: Path) -> None:
    empty = Order(np.zeros((0, 1), np.uint16), np.zeros(0, np.uint16), np.zeros(0, np.uint8))
    path.write_bytes(table_bytes([empty], VOCABULARY))
    assert load_table(path, TOKENIZER).after(5) is None
