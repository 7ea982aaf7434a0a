"""Replies on disk: safetensors files of token ids, written whole or not at all, and what they were made from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints.cache import write_atomically

RECIPE = "recipe.json"
HUMAN_EVAL = "HumanEval"
HELD_OUT = "held-out"
"""First word of a recipe's prompts that were made of text which only measures."""
TENSORS = ("tokens", "offsets", "reply_starts", "index", "kind", "temperature")


@dataclass(frozen=True, slots=True)
class WrittenReply:
    """A prompt and the reply to it.

    Attributes:
        index: the prompt's number.
        kind: what sort of prompt it was.
        temperature: 0 for greedy.
        prompt, reply: token ids; a reply that ended by itself carries its end token.
    """

    index: int
    kind: str
    temperature: float
    prompt: tuple[int, ...]
    reply: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What decides every token of a directory of replies.

    Attributes:
        vocabulary: hash of the tokenizer's.
        corpus: hash of the material that prompts are made of.
        versions: of what the material was taken from.
        context, most_new: most tokens of prompt and reply, and of the reply.
        sampling: how tokens were drawn where it is not the command's usual way.
    """

    model: str
    vocabulary: str
    dtype: str
    prompts: str
    corpus: str
    versions: Mapping[str, str]
    seed: int
    context: int
    most_new: int
    sampling: str = ""


class UnusableReplies(ValueError):
    """A directory of replies that is missing, damaged or of another recipe. The message says what to do."""


def answers_problems(recipe: Mapping[str, Any]) -> bool:
    """Whether the replies answer HumanEval, which drafters are measured on and never learn from."""
    return str(recipe.get("prompts")).partition(" ")[0] == HUMAN_EVAL


def check_learnable(directory: Path, recipe: Mapping[str, Any], instead: str) -> None:
    """Refuse to learn from replies that only measure; `instead` is the flag that takes them.

    Raises:
        UnusableReplies: naming the directory and that flag.
    """
    kind = str(recipe.get("prompts")).partition(" ")[0]
    if kind in (HUMAN_EVAL, HELD_OUT):
        what = HUMAN_EVAL if kind == HUMAN_EVAL else "held-out text"
        raise UnusableReplies(
            f"{directory} holds the replies to {what}, which measure drafters and train none; give them as {instead}"
        )


def open_directory(directory: Path, recipe: Recipe) -> None:
    """Make the directory, or check that what lies there is of the same recipe.

    Raises:
        UnusableReplies: naming what differs.
    """
    path = directory / RECIPE
    if not path.exists():
        write_atomically(path, json.dumps(asdict(recipe), indent=1).encode())
        return
    found, wanted = {"sampling": "", **read_recipe(directory)}, asdict(recipe)
    different = [
        f"{name} {found.get(name)!r} there, {wanted[name]!r} now" for name in wanted if found.get(name) != wanted[name]
    ]
    if different:
        raise UnusableReplies(
            f"{directory} holds replies of another recipe ({'; '.join(different)}); give another --output"
        )


def read_recipe(directory: Path) -> dict[str, Any]:
    """What the replies there were made from.

    Raises:
        UnusableReplies: there are none.
    """
    path = directory / RECIPE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnusableReplies(
            f"{directory} holds no replies ({path.name}: {error}); `tfjax train replies` writes some"
        ) from error
    if not isinstance(found, dict):
        raise UnusableReplies(f"{path} is no recipe; remove the directory and write the replies again")
    return found


def write_shard(directory: Path, replies: Sequence[WrittenReply], vocab_size: int) -> Path:
    """Write the next shard."""
    from safetensors.numpy import save

    tokens = [token for reply in replies for token in (*reply.prompt, *reply.reply)]
    kinds = list(dict.fromkeys(reply.kind for reply in replies))
    ends = np.cumsum([0, *(len(reply.prompt) + len(reply.reply) for reply in replies)])
    tensors = {
        "tokens": np.array(tokens, np.uint16 if vocab_size <= 1 << 16 else np.int32),
        "offsets": ends.astype(np.int64),
        "reply_starts": ends[:-1] + np.array([len(reply.prompt) for reply in replies], np.int64),
        "index": np.array([reply.index for reply in replies], np.int64),
        "kind": np.array([kinds.index(reply.kind) for reply in replies], np.uint8),
        "temperature": np.array([reply.temperature for reply in replies], np.float32),
    }
    number = max((int(path.stem.removeprefix("shard-")) for path in shards(directory)), default=-1) + 1
    path = directory / f"shard-{number:05d}.safetensors"
    write_atomically(path, save(tensors, {"kinds": json.dumps(kinds)}))
    return path


def shards(directory: Path) -> list[Path]:
    """The shards of a directory, in order."""
    return sorted(directory.glob("shard-[0-9][0-9][0-9][0-9][0-9].safetensors"))


def read_replies(directory: Path) -> Iterator[WrittenReply]:
    """All replies, in the order in which they were finished."""
    for path in shards(directory):
        yield from _read_shard(path)


def written(directory: Path) -> tuple[set[int], int]:
    """Numbers of the prompts that are answered, and how many tokens the replies have together."""
    done: set[int] = set()
    tokens = 0
    for path in shards(directory):
        arrays, _ = _arrays(path)
        done.update(arrays["index"].tolist())
        tokens += int((arrays["offsets"][1:] - arrays["reply_starts"]).sum())
    return done, tokens


def _read_shard(path: Path) -> Iterator[WrittenReply]:
    arrays, kinds = _arrays(path)
    tokens = arrays["tokens"].tolist()
    offsets, starts = arrays["offsets"].tolist(), arrays["reply_starts"].tolist()
    for number, start in enumerate(starts):
        yield WrittenReply(
            index=int(arrays["index"][number]),
            kind=kinds[arrays["kind"][number]],
            temperature=round(float(arrays["temperature"][number]), 4),
            prompt=tuple(tokens[offsets[number] : start]),
            reply=tuple(tokens[start : offsets[number + 1]]),
        )


def _arrays(path: Path) -> tuple[dict[str, NDArray[Any]], list[str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            if "temperature" not in file.keys():  # noqa: SIM118  (no mapping)
                raise UnusableReplies(
                    f"{path} does not tell at which temperatures its replies were drawn, and drafters are trained and "
                    "measured at these; remove it, and its prompts are answered again"
                )
            return {name: file.get_tensor(name) for name in TENSORS}, json.loads(file.metadata()["kinds"])
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UnusableReplies(
            f"{path} is no shard of replies ({error}); remove it, and its prompts are answered again"
        ) from error
