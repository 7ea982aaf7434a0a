"""The prompts that a model answers for training: seed and number decide each."""

from __future__ import annotations

import keyword
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tfjax.train.harvest import Corpus, Function, Passage
from tfjax.train.held_out import Problem
from tfjax.train.questions import SYSTEMS, list_request, question

VERSION = 1
"""Raise it with any change of what is drawn: replies to other prompts do not belong into the same directory."""

COMPLETIONS = (
    "Complete this Python function:\n\n{code}",
    "Write the body of the following function. Return the whole function.\n\n{code}",
    "Implement this:\n\n{code}",
    "Finish the code below so that it does what its docstring says.\n\n{code}",
    "Here is the start of a Python function. Please complete it.\n\n{code}",
    "Write a Python function `{name}` that does the following: {docstring}",
)
EXPLANATIONS = (
    "Explain what this code does:\n\n{code}",
    "What does the following function do, and when would one use it?\n\n{code}",
    "Go through this function line by line:\n\n{code}",
    "{code}\n\nExplain this to a beginner.",
    "Write a docstring for this function:\n\n{code}",
    "Are there any bugs in this code? How could it be improved?\n\n{code}",
    "Write a unit test for this function:\n\n{code}",
)
EDITS = (
    "Rename the variable `{word}` to `{other}` in this code and give back the whole code:\n\n{code}",
    "Add type hints to this function. Return the full function.\n\n{code}",
    "Add comments to this code and return all of it:\n\n{code}",
    "Rewrite this function with clearer variable names:\n\n{code}",
    "Add error handling to the following function and show the complete result.\n\n{code}",
    "{code}\n\nFix any bugs in the code above and give the whole function back.",
    "Refactor this code so that it is easier to read. Give the whole function back.\n\n{code}",
    "Rename the function `{name}` to `{other}`, and repeat it otherwise unchanged.\n\n{code}",
    "Remove the docstring from this function and return the rest unchanged:\n\n{code}",
)
DOCUMENT_QUESTIONS = (
    "{text}\n\nWhat is the main point of this text?",
    "Read this about {title}:\n\n{text}\n\nWhat should a user pay attention to?",
    "{text}\n\nExplain this in simpler words.",
    "This is from the documentation of {title}:\n\n{text}\n\nGive an example of how to use it.",
    "{text}\n\nWrite three questions that this text answers, and answer them.",
    "Correct the spelling and style of this text and return all of it:\n\n{text}",
)
SUMMARIES = (
    "Summarize the following text:\n\n{text}",
    "Summarize this in one sentence:\n\n{text}",
    "{text}\n\nTL;DR",
    "Write a short summary of this text about {title}, as a list of bullet points:\n\n{text}",
    "What are the key points of this?\n\n{text}",
)
NEW_WORDS = ("value", "result", "item", "total", "current", "entry", "data_in", "new_name", "helper", "process_input")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt and how its reply is drawn.

    Attributes:
        messages: a chat; () where `text` is to be continued as it stands.
        temperature: 0 for greedy.
        seed: of the draws.
    """

    index: int
    kind: str
    messages: tuple[Mapping[str, str], ...]
    text: str
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class Prompts:
    """Draws prompts from a corpus. Equal corpus, seed and number give equal prompts on every machine."""

    corpus: Corpus
    seed: int

    def draw(self, index: int, attempt: int = 0) -> Prompt:
        """Prompt number `index`; another one under the same number for each further attempt (one may be too long)."""
        chance = random.Random(f"{self.seed}/{index}/{attempt}")  # noqa: S311  (no secret)
        kind = chance.choices(tuple(KINDS), tuple(weight for weight, _ in KINDS.values()))[0]
        greedy = chance.random() < 0.5
        temperature = 0.0 if greedy else round(chance.uniform(0.7, 1.0), 2)
        seed = chance.getrandbits(63)
        text = KINDS[kind][1](chance, self.corpus)
        if kind == "code continuation":
            return Prompt(index, kind, (), text, temperature, seed)
        system = [{"role": "system", "content": chance.choice(SYSTEMS)}] if chance.random() < 0.2 else []
        return Prompt(index, kind, (*system, {"role": "user", "content": text}), "", temperature, seed)


@dataclass(frozen=True, slots=True)
class ProblemPrompts:
    """HumanEval's problems as prompts, for measuring: each as a chat and as it stands, greedy and at 0.8."""

    problems: Sequence[Problem]
    seed: int
    ways: tuple[tuple[bool, float], ...] = field(default=((True, 0.0), (True, 0.8), (False, 0.0), (False, 0.8)))

    def __len__(self) -> int:
        return len(self.problems) * len(self.ways)

    def draw(self, index: int, attempt: int = 0) -> Prompt:
        problem = self.problems[index // len(self.ways)]
        chat, temperature = self.ways[index % len(self.ways)]
        seed = random.Random(f"{self.seed}/{index}").getrandbits(63)  # noqa: S311  (no secret)
        if not chat:
            return Prompt(index, "code continuation", (), problem.prompt, temperature, seed)
        message = {"role": "user", "content": f"Complete this Python function:\n\n{_fenced(problem.prompt)}"}
        return Prompt(index, "code completion", (message,), "", temperature, seed)


def _completion(chance: random.Random, corpus: Corpus) -> str:
    function = chance.choice(corpus.documented)
    return _about(chance, COMPLETIONS, function, function.head)


def _continuation(chance: random.Random, corpus: Corpus) -> str:
    return chance.choice(corpus.documented).head + "\n"


def _explanation(chance: random.Random, corpus: Corpus) -> str:
    function = chance.choice(corpus.functions)
    return _about(chance, EXPLANATIONS, function, function.source)


def _edit(chance: random.Random, corpus: Corpus) -> str:
    function = chance.choice(corpus.functions)
    return _about(chance, EDITS, function, function.source)


def _about(chance: random.Random, patterns: Sequence[str], function: Function, code: str) -> str:
    words = [word for word in _names(function.source) if word != function.name] or ["x"]
    return chance.choice(patterns).format(
        code=_fenced(code) if chance.random() < 0.7 else code,
        name=function.name,
        docstring=function.docstring,
        word=chance.choice(words),
        other=chance.choice(NEW_WORDS),
    )


def _names(source: str) -> list[str]:
    """Lower-case names of a source, in order of appearance."""
    names = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", source))
    return [name for name in names if name.islower() and len(name) > 2 and name not in _KEYWORDS]


_KEYWORDS = frozenset({*keyword.kwlist, "self", "cls"})


def _document_question(chance: random.Random, corpus: Corpus) -> str:
    return _of_passage(chance, DOCUMENT_QUESTIONS, chance.choice(corpus.passages))


def _summary(chance: random.Random, corpus: Corpus) -> str:
    return _of_passage(chance, SUMMARIES, chance.choice(corpus.passages))


def _of_passage(chance: random.Random, patterns: Sequence[str], passage: Passage) -> str:
    return chance.choice(patterns).format(text=passage.text, title=passage.title)


def _fenced(code: str) -> str:
    return f"```python\n{code.rstrip()}\n```"


KINDS: Mapping[str, tuple[float, Callable[[random.Random, Corpus], str]]] = {
    "code completion": (0.20, _completion),
    "code continuation": (0.06, _continuation),
    "explanation": (0.14, _explanation),
    "edit": (0.18, _edit),
    "document question": (0.10, _document_question),
    "summary": (0.06, _summary),
    "list": (0.08, lambda chance, _: list_request(chance)),
    "chat": (0.18, lambda chance, _: question(chance)),
}
"""Kind of prompt -> its share, and what writes it."""
