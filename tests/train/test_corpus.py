"""Which files are read, in which order, and which of them are held out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjax.train.corpus import FILE_CHARS, LONGEST_LINE, MissingPackage, is_held_out, read_sources, unsuitable

CODE = "def f(x):\n    return x\n\n" * 20


def library(base: Path, **files: str) -> Path:
    for name, text in files.items():
        path = base / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return base


def test_files_come_in_the_order_of_their_paths_under_dotted_names(tmp_path: Path) -> None:
    found = read_sources(library=library(tmp_path, b__c=CODE + "1", a=CODE, b__d__e=CODE + "2"))
    assert [(file.module, len(file.text)) for file in found.files] == [
        ("a", len(CODE)),
        ("b.c", len(CODE) + 1),
        ("b.d.e", len(CODE) + 1),
    ]
    assert found.licenses == {"python": "PSF-2.0"}


def test_a_package_is_named_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "__init__.py").write_text(CODE)
    assert [file.module for file in read_sources(library=tmp_path).files] == ["p"]


def test_what_another_file_said_is_left_out(tmp_path: Path) -> None:
    found = read_sources(library=library(tmp_path, a=CODE, b=CODE))
    assert [file.module for file in found.files] == ["a"]
    assert found.left_out == {"said before": 1}


def test_installed_packages_of_the_library_are_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "x.py").write_text(CODE)
    assert read_sources(library=tmp_path).files == ()


def test_a_file_in_another_encoding_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(CODE.encode() + b"\xff")
    assert read_sources(library=tmp_path).left_out == {"too short or too long": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CODE, None),
        ("x" * (FILE_CHARS[0] - 1), "too short or too long"),
        ("x\n" * FILE_CHARS[1], "too short or too long"),
        (CODE + "x" * (LONGEST_LINE + 1), "not written by hand"),
        (CODE + "x" * LONGEST_LINE, None),
        ("0x80, 0x81,\n" * 50, "mostly numbers"),
    ],
)
def test_unsuitable_texts_have_a_reason(text: str, reason: str | None) -> None:
    assert unsuitable(text) == reason


def test_packages_are_read_with_their_licence(tmp_path: Path) -> None:
    found = read_sources(["packaging"], library=library(tmp_path, a=CODE))
    assert "packaging.version" in [file.module for file in found.files]
    assert set(found.versions) == set(found.licenses) == {"python", "packaging"}
    assert "Apache" in found.licenses["packaging"]


@pytest.mark.parametrize("name", ["no_such_package", "../x"])
def test_a_missing_package_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingPackage, match=f"no package '{name}' here to read"):
        read_sources([name], library=tmp_path)


def test_names_decide_what_is_held_out() -> None:
    held_out = [number for number in range(5000) if is_held_out(f"module{number}")]
    assert 60 < len(held_out) < 140
    assert held_out[:3] == [44, 64, 85]


def test_the_hash_tells_texts_and_names_apart(tmp_path: Path) -> None:
    hashes = [
        read_sources(library=library(tmp_path / str(number), **files)).sha256
        for number, files in enumerate([{"a": CODE}, {"a": CODE + "x"}, {"b": CODE}, {"a": CODE}])
    ]
    assert len(set(hashes)) == 3
    assert hashes[0] == hashes[3]
