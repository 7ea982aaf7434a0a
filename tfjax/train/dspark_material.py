"""What the training of a DSpark drafter starts from: target and replies read and compared, shapes decided."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfjax.checkpoints import Checkpoint, open_checkpoint
from tfjax.checkpoints.resolve import resolve_model
from tfjax.engine.load import model_id
from tfjax.engine.table import vocabulary_hash
from tfjax.models.blocks.markov import MarkovKind
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.blocks.rope import RopeConfig
from tfjax.models.dspark_config import DSparkConfig
from tfjax.options import ConfigError
from tfjax.text.loading import load_tokenizer
from tfjax.text.tokenizer import Tokenizer
from tfjax.train.dense_target import TargetShape, target_shape
from tfjax.train.dspark_blocks import Rows
from tfjax.train.dspark_files import MIB, part_bytes
from tfjax.train.dspark_settings import Settings
from tfjax.train.dspark_start import Start, read_start
from tfjax.train.shards import HUMAN_EVAL, answers_problems, check_learnable, read_recipe, read_replies
from tfjax.train.small_data import (
    HELD_OUT_ONE_IN,
    Document,
    Ints,
    Packed,
    check_recipe,
    coverage,
    draft_vocabulary,
    pack,
)


@dataclass(frozen=True, slots=True)
class Written:
    """A reply and the temperature that drew it."""

    document: Document
    temperature: float


@dataclass(frozen=True, slots=True)
class Material:
    """All that training reads.

    Attributes:
        target: what is known of the target beside its weights.
        config: the drafter's shapes.
        draft_ids: tokens that can be drafted, in rising order.
        rows: replies to learn from.
        measured: name -> replies to measure on; greedy and drawn ones apart.
        start: what training goes on from, None for random parameters.
        counts: how many replies and tokens are learned, and under `recipes` what they were made from.
    """

    checkpoint: Checkpoint
    target: TargetShape
    config: DSparkConfig
    draft_ids: Ints
    rows: Rows
    measured: dict[str, Rows]
    start: Start | None
    counts: dict[str, Any]


def gather(settings: Settings, progress: Callable[[str, float], None]) -> Material:
    """Read everything and check that it goes together, the cheap checks first.

    Raises:
        ValueError: no replies, replies of another model, or a drafter that would be too large.
        CheckpointError, ConfigError: a target that cannot be used.
    """
    recipes = {directory: read_recipe(directory) for directory in (*settings.replies, *settings.held_out)}
    for directory in settings.replies:
        check_learnable(directory, recipes[directory], "--held-out")
    progress("finding the target", 0.0)
    path = resolve_model(settings.model, offline=False, progress=progress)
    checkpoint = open_checkpoint(path)
    target, tokenizer = target_shape(checkpoint), load_tokenizer(checkpoint)
    vocabulary = vocabulary_hash(tokenizer)
    for directory, recipe in recipes.items():
        check_recipe(directory, recipe, model=model_id(path), vocabulary=vocabulary)
    progress("reading replies", 0.0)
    written = [reply for directory in settings.replies for reply in read_written(directory)]
    kept = [reply for reply in written if not reply.document.held_out]
    learned = [reply.document for reply in kept]
    if not learned:
        where = ", ".join(map(str, settings.replies))
        raise ValueError(f"all {len(written)} replies of {where} are held out; write more of them")
    mask_token = mask_of(settings, tokenizer, target, learned)
    config = dspark_config(settings, target, mask_token, vocabulary)
    check_size(config, int(settings.bits), settings.max_mib)
    start = None if settings.start_from is None else read_start(settings.start_from, config)
    draft_ids = draft_vocabulary(learned, target.vocab, config.draft_vocab) if start is None else start.draft_ids
    measured = {"held-out replies": [reply for reply in written if reply.document.held_out]}
    measured |= {_name(directory, recipes[directory]): read_written(directory) for directory in settings.held_out}
    counts = {
        "recipes": [recipes[directory] for directory in settings.replies],
        "replies": len(learned),
        "reply_tokens": sum(len(document.reply) for document in learned),
        "prompt_tokens": sum(document.reply_start for document in learned),
        "temperatures": tokens_by_temperature(kept),
        "draft_vocab_coverage": round(coverage(learned, draft_ids), 5),
    }
    return Material(
        checkpoint=checkpoint,
        target=target,
        config=config,
        draft_ids=draft_ids,
        rows=rows_of(kept, settings.length),
        start=start,
        measured=dict(_rows_by_name(measured, settings.length)),
        counts=counts,
    )


def read_written(directory: Path) -> list[Written]:
    """All replies of a directory. What is held out is decided by a hash of the prompt, so the same in every directory.

    Raises:
        ValueError: the directory holds no replies, or a damaged shard.
    """
    read_recipe(directory)
    found = [
        Written(
            Document(
                token=np.array(reply.prompt + reply.reply, np.int32),
                reply_start=len(reply.prompt),
                greedy=reply.temperature == 0,
                held_out=is_held_out(reply.prompt),
            ),
            reply.temperature,
        )
        for reply in read_replies(directory)
    ]
    if not found:
        raise ValueError(f"{directory} has a recipe and no replies yet; let `tfjax train replies` write some")
    return found


def is_held_out(prompt: Sequence[int]) -> bool:
    """Whether replies to this prompt are measured on and never learned."""
    digest = hashlib.sha256(np.array(prompt, np.int32).tobytes()).digest()
    return int.from_bytes(digest[:8]) % HELD_OUT_ONE_IN == 0


def rows_of(replies: Sequence[Written], length: int) -> Rows:
    """Replies in packed rows, each row of one temperature."""
    groups: dict[float, list[Document]] = {}
    for reply in replies:
        groups.setdefault(reply.temperature, []).append(reply.document)
    packed = {temperature: pack(groups[temperature], length) for temperature in sorted(groups)}
    drawn: NDArray[np.float32] = np.concatenate([np.full(len(rows.token), t, np.float32) for t, rows in packed.items()])
    return Rows(Packed(*(np.concatenate(parts) for parts in zip(*packed.values(), strict=True))), drawn)


def tokens_by_temperature(replies: Sequence[Written]) -> dict[str, int]:
    """Reply tokens by the temperature that drew them."""
    found: Counter[float] = Counter()
    for reply in replies:
        found[reply.temperature] += len(reply.document.reply)
    return {f"{temperature:g}": found[temperature] for temperature in sorted(found)}


def dspark_config(settings: Settings, target: TargetShape, mask_token: int, vocabulary: str) -> DSparkConfig:
    """The drafter's shapes: as asked, with the target's width, heads, rotation, epsilon and context.

    Raises:
        ConfigError: a tap that the target has not.
    """
    draft_vocab = min(settings.draft_vocab or target.vocab, target.vocab)
    auto = target.drafter.startswith("Lfm2")
    return DSparkConfig(
        hidden=target.hidden,
        target_hidden=target.hidden,
        layers=settings.layers,
        heads=target.heads,
        kv_heads=target.kv_heads,
        head_dim=target.head_dim,
        inner=settings.inner,
        norm_eps=target.norm_eps,
        rope=RopeConfig(target.rope.theta),
        qk_norm=QKNorm(settings.qk_norm_order),
        interleaved=auto if settings.rope == "auto" else settings.rope == "interleaved",
        vocab=target.vocab,
        draft_vocab=draft_vocab,
        block=settings.block,
        mask_token=mask_token,
        taps=tapped_layers(settings.taps, target.layers),
        target_layers=target.layers,
        markov=MarkovKind(settings.markov_head),
        markov_rank=settings.markov_rank,
        markov_rows=draft_vocab,
        confidence=True,
        confidence_with_markov=True,
        confidence_temperatures=(),
        anchor_first=True,
        own_embedding=False,
        own_head=False,
        context=target.context,
        vocabulary_sha256=vocabulary,
    )


def tapped_layers(asked: int | tuple[int, ...], layers: int) -> tuple[int, ...]:
    """The layers themselves, or that many from the second to the last but two, of a small target from its first on.

    Raises:
        ConfigError: more than there are, or the last layer, whose output no server captures.
    """
    if isinstance(asked, int):
        for first, last in ((1, layers - 3), (0, layers - 2)):
            spread = dict.fromkeys(np.linspace(first, last, asked).round().astype(int).tolist())
            if last >= first and len(spread) == asked:
                return tuple(spread)
        raise ConfigError(f"--taps: {asked} are more than a target of {layers} layers has; give fewer")
    if max(asked) > layers - 2:
        raise ConfigError(f"--taps: layer {max(asked)} cannot be read; give layers from 0 to {layers - 2}")
    return asked


def mask_of(settings: Settings, tokenizer: Tokenizer, target: TargetShape, learned: Sequence[Document]) -> int:
    """The asked token, or the special one that replies use least.

    Raises:
        ConfigError: a token that the target has not.
    """
    if settings.mask_token is not None:
        if settings.mask_token >= target.vocab:
            raise ConfigError(f"--mask-token: {settings.mask_token} is no token; the last one is {target.vocab - 1}")
        return settings.mask_token
    tokens = min(tokenizer.vocab_size, target.vocab)
    special = [token for token in range(tokens) if tokenizer.is_special(token)]
    used = Counter(np.concatenate([document.token for document in learned]).tolist())
    return min(special or range(tokens), key=lambda token: (used[token], token))


def check_size(config: DSparkConfig, bits: int, max_mib: float) -> None:
    """Refuse a drafter whose file would be too large.

    Raises:
        ValueError: with the sizes of its parts.
    """
    parts = part_bytes(config, bits)
    size = sum(parts.values())
    if size > max_mib * MIB:
        listing = ", ".join(f"{name} {part / MIB:.2f}" for name, part in parts.items() if part >= MIB / 100)
        raise ValueError(
            f"the drafter's file would have {math.ceil(100 * size / MIB) / 100} MiB, more than --max-mib "
            f"{max_mib:g} ({listing}); lower --layers, --inner, --taps, --markov-rank or --draft-vocab, take --bits 8, "
            "or raise --max-mib"
        )


def _rows_by_name(measured: dict[str, list[Written]], length: int) -> Iterable[tuple[str, Rows]]:
    for name, replies in measured.items():
        for drawn, word in ((False, "greedy"), (True, "sampled")):
            chosen = [reply for reply in replies if (reply.temperature > 0) == drawn]
            if chosen:
                yield f"{name}, {word}", rows_of(chosen, length)


def _name(directory: Path, recipe: dict[str, Any]) -> str:
    return HUMAN_EVAL if answers_problems(recipe) else directory.name
