"""`tfjax train table` put together: count, prune, measure on what was held out, write the table and its record."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjax import __version__
from tfjax.checkpoints import open_checkpoint
from tfjax.checkpoints.cache import write_atomically
from tfjax.checkpoints.resolve import resolve_model
from tfjax.engine.table import Order, load_table, table_bytes, vocabulary_hash
from tfjax.lanes.best_offer import BestOffer
from tfjax.lanes.copy_drafts import CopyDrafts
from tfjax.lanes.proposer import Proposer
from tfjax.lanes.table_drafts import Table, TableDrafts
from tfjax.readable_json import readable_json
from tfjax.text.loading import load_tokenizer
from tfjax.train.ngrams import Grams, count, guesses, prune, windows
from tfjax.train.replaying import replay
from tfjax.train.shards import (
    UnusableReplies,
    WrittenReply,
    check_learnable,
    read_recipe,
    read_replies,
)

HELD_OUT_EVERY = 20
COPY_LEAST_MATCH = 4

type Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What `tfjax train table` is told.

    Attributes:
        replies: directories of `tfjax train replies` to count.
        evaluate: directories to measure on beside the held-out replies, by name.
        words: the command line, for the record.
    """

    replies: Sequence[Path]
    evaluate: Sequence[Path]
    output: Path
    size_mib: float
    model: str | None
    words: Sequence[str]


def train_table(settings: TableSettings, progress: Progress) -> dict[str, Any]:
    """Write the table and, beside it, the record, which is returned.

    Raises:
        UnusableReplies: replies that are damaged, missing, or of another vocabulary.
    """
    started_s = time.monotonic()
    progress("finding the model", 0.0)
    tokenizer = load_tokenizer(open_checkpoint(resolve_model(settings.model, offline=False, progress=progress)))
    vocabulary = vocabulary_hash(tokenizer)
    progress("reading replies", 0.0)
    recipes = {directory: _checked_recipe(directory, vocabulary) for directory in settings.replies}
    for directory, recipe in recipes.items():
        check_learnable(directory, recipe, "--evaluate")
    counted, held_out = split(reply for directory in settings.replies for reply in read_replies(directory))
    if not counted:
        raise UnusableReplies("there are no replies to count yet; let `tfjax train replies` write some")
    progress("counting", 0.0)
    orders = count(windows(counted))
    kept = prune(orders, guesses(orders), int(settings.size_mib * (1 << 20)), tokenizer.vocab_size)
    content = table_bytes(kept, vocabulary)
    write_atomically(settings.output, content)
    table = load_table(settings.output, tokenizer)
    sets = {"held-out replies": held_out}
    for directory in settings.evaluate:
        _checked_recipe(directory, vocabulary)
        sets[directory.name] = list(read_replies(directory))
    acceptance = {}
    for done, (name, replies) in enumerate(sets.items()):
        progress("measuring", done / len(sets))
        acceptance[name] = measure(table, replies)
    record = {
        "command": shlex.join(["tfjax", "train", "table", *settings.words]),
        "version": __version__,
        "replies": {str(directory): recipe for directory, recipe in recipes.items()},
        "counted": _sizes(counted),
        "held_out": _sizes(held_out),
        "contexts": _contexts(orders, kept),
        "bytes": len(content),
        "acceptance": acceptance,
        "seconds": round(time.monotonic() - started_s, 1),
    }
    write_atomically(settings.output.with_suffix(".json"), (readable_json(record) + "\n").encode())
    return record


def split(replies: Iterable[WrittenReply]) -> tuple[list[WrittenReply], list[WrittenReply]]:
    """Replies to count, and those held out: every 20th prompt's."""
    counted: list[WrittenReply] = []
    held_out: list[WrittenReply] = []
    for reply in replies:
        (counted if reply.index % HELD_OUT_EVERY else held_out).append(reply)
    return counted, held_out


def measure(table: Table, replies: Sequence[WrittenReply]) -> dict[str, Any]:
    """Landings of the table alone, of copies alone and of the better offer, on greedy and on sampled replies."""

    def copies() -> Proposer:
        return CopyDrafts(COPY_LEAST_MATCH)

    drafters: Mapping[str, Callable[[], Proposer]] = {
        "table": lambda: TableDrafts(table),
        "copy": copies,
        "best of both": lambda: BestOffer([copies(), TableDrafts(table)]),
    }
    parts = {
        "greedy": [reply for reply in replies if reply.temperature == 0],
        "sampled": [reply for reply in replies if reply.temperature > 0],
    }
    return {
        part: {name: replay(chosen, drafter).as_dict() for name, drafter in drafters.items()}
        for part, chosen in parts.items()
        if chosen
    }


def summary(record: Mapping[str, Any]) -> str:
    """The record's acceptance in lines for people."""
    contexts = ", ".join(f"{part['kept']} of {length}" for length, part in record["contexts"].items())
    lines = [f"{record['bytes'] / 2**20:.2f} MiB from {record['counted']['tokens']} tokens; contexts kept: {contexts}"]
    for name, parts in record["acceptance"].items():
        for part, drafters in parts.items():
            for drafter, found in drafters.items():
                depths = " ".join(f"{share:.3f}" for share in found["landed_per_round"][:4])
                rate = f"{found['tokens_per_round']:.3f} tokens a round"
                lines.append(f"{name}, {part}, {drafter}: {rate}; landed by depth {depths}")
    return "\n".join(lines)


def _checked_recipe(directory: Path, vocabulary: str) -> dict[str, Any]:
    recipe = read_recipe(directory)
    if recipe.get("vocabulary") != vocabulary:
        raise UnusableReplies(
            f"{directory} holds replies of {recipe.get('model')!r}, whose vocabulary is another than this model's; "
            "give the model that wrote them as --model"
        )
    return recipe


def _sizes(replies: Sequence[WrittenReply]) -> dict[str, Any]:
    return {
        "replies": len(replies),
        "tokens": sum(len(reply.reply) for reply in replies),
        "greedy_replies": sum(reply.temperature == 0 for reply in replies),
        "replies_by_kind": dict(sorted(Counter(reply.kind for reply in replies).items())),
    }


def _contexts(orders: Sequence[Grams], kept: Sequence[Order]) -> dict[str, dict[str, int]]:
    return {
        str(length): {"seen": len(grams.contexts), "kept": len(order.tokens)}
        for length, (grams, order) in enumerate(zip(orders, kept, strict=True), start=1)
    }
