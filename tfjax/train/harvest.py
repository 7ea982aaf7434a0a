"""Material for prompts that every machine has: sources and documentation of Python and of our dependencies."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import platform
import sysconfig
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfjax.train.held_out import HeldOut

PACKAGES = (
    "flax",
    "gguf",
    "huggingface_hub",
    "jax",
    "numpy",
    "packaging",
    "rich",
    "safetensors",
    "starlette",
    "uvicorn",
)
"""Dependencies with readable Python in them."""

SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "testing", "_vendor", "site-packages", "idlelib", "turtledemo", "lib2to3"}
)
FUNCTION_CHARS = (80, 1500)
PASSAGE_CHARS = (250, 1600)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of some module.

    Attributes:
        head: its source up to the end of the docstring, "" where it has none.
        source: all of it, dedented.
    """

    module: str
    name: str
    docstring: str
    head: str
    source: str


@dataclass(frozen=True, slots=True)
class Passage:
    """Some paragraphs of documentation, and what they are about."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """All material, in an order that depends on the installed versions alone.

    Attributes:
        documented: functions with a docstring.
        versions: of what the material was taken from.
    """

    functions: tuple[Function, ...]
    documented: tuple[Function, ...]
    passages: tuple[Passage, ...]
    versions: dict[str, str]

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for part in (*(function.source for function in self.functions), *(passage.text for passage in self.passages)):
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()


def harvest(
    held_out: HeldOut, packages: Iterable[str] = PACKAGES, skips: Callable[[str], bool] | None = None
) -> Corpus:
    """Read Python's library and the packages that are installed, leaving out what is held out.

    Args:
        skips: tells modules, by dotted name, of which nothing is read.
    """
    functions: dict[str, Function] = {}
    passages: dict[str, Passage] = {}
    versions = {"python": platform.python_version()}
    roots = [("", Path(sysconfig.get_path("stdlib")))]
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            versions[name] = importlib.metadata.version(name)
            roots.append((f"{name}.", Path(next(iter(spec.submodule_search_locations)))))
    for prefix, root in roots:
        for module, tree, lines in _modules(prefix, root):
            if skips is not None and skips(module):
                continue
            found = [function for function in _functions(module, tree, lines) if not held_out.covers(function)]
            functions |= {function.source: function for function in found}
            passages |= {passage.text: passage for passage in _module_passages(module, tree)}
    for title, text in (*_topics(), *_descriptions(versions)):
        passages |= {passage.text: passage for passage in _passages(title, text)}
    kept = tuple(functions.values())
    return Corpus(kept, tuple(one for one in kept if one.head), tuple(passages.values()), versions)


def _modules(prefix: str, root: Path) -> Iterator[tuple[str, ast.Module, list[str]]]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if SKIPPED_FOLDERS & set(parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # old modules have escapes that newer Pythons warn of
                tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError):
            continue
        yield prefix + ".".join(parts).removesuffix(".__init__"), tree, text.splitlines()


def _functions(module: str, tree: ast.Module, lines: list[str]) -> Iterator[Function]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.end_lineno is None:
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        source = textwrap.dedent("\n".join(lines[first : node.end_lineno]))
        if not FUNCTION_CHARS[0] <= len(source) <= FUNCTION_CHARS[1]:
            continue
        docstring = ast.get_docstring(node) or ""
        end = node.body[0].end_lineno if docstring else None
        head = textwrap.dedent("\n".join(lines[first:end])) if end is not None and end < node.end_lineno else ""
        yield Function(module, node.name, docstring, head, source)


def _module_passages(module: str, tree: ast.Module) -> Iterator[Passage]:
    yield from _passages(f"the Python module {module}", ast.get_docstring(tree) or "")
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _passages(f"the class {node.name} of {module}", ast.get_docstring(node) or "")


def _topics() -> Iterator[tuple[str, str]]:
    """The chapters of the language reference that `help()` shows."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield f"Python's {name}", topics[name]


def _descriptions(packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The introductions that packages carry in their metadata."""
    for name in packages:
        if name != "python":
            text = importlib.metadata.metadata(name).json.get("description", "")
            yield f"the Python package {name}", text if isinstance(text, str) else ""


def _passages(title: str, text: str) -> Iterator[Passage]:
    """Runs of whole paragraphs; what is longer or shorter than a passage is left out."""
    least, most = PASSAGE_CHARS
    run = ""
    for paragraph in [*text.split("\n\n"), ""]:
        longer = f"{run}\n\n{paragraph}".strip() if paragraph.strip() else run
        if paragraph.strip() and len(longer) <= most:
            run = longer
            continue
        if least <= len(run):
            yield Passage(title, run)
        run = paragraph.strip() if len(paragraph) <= most else ""
