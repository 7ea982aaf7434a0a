"""Whether a DSpark drafter fits a target, known before any weight is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfjax.checkpoints import Checkpoint, CheckpointError, TensorInfo
from tfjax.engine.drafters.draft_vocabulary import MAPS
from tfjax.engine.drafters.dspark_tensors import Rounded, Unprefixed
from tfjax.engine.table import vocabulary_hash
from tfjax.engine.weights import LoadedModel
from tfjax.models.blocks.qk_norm import QKNorm
from tfjax.models.config import ConfigError
from tfjax.models.dspark_config import DSparkConfig
from tfjax.models.dspark_packaging import unpack
from tfjax.text.tokenizer import Tokenizer

BITS = (16, 8)
"""Precisions of a drafter's weights."""

PADDING = 256
"""Most rows by which two vocabularies of the same tokens may differ."""

TRAINING_ONLY = ("verifier_norm.weight", "verifier_lm_head.weight")
"""Tensors of the target's that an export may carry and no draft reads."""


@dataclass(frozen=True, slots=True)
class DSparkOptions:
    """What a user may set of a DSpark drafter.

    Attributes:
        bits: 16 takes the weights as they are. 8 rounds them to 8-bit codes, to serve what an 8-bit file would.
        qk_norm: where heads are normalised; None takes what the config says.
    """

    bits: int = 16
    qk_norm: QKNorm | None = None


AS_STORED = DSparkOptions()


@dataclass(frozen=True, slots=True)
class FittingDSpark:
    """A drafter that fits.

    Attributes:
        checkpoint: its tensors by the published names, without a prefix.
        config: with what only the tensors tell.
        beside: tensors that the checkpoint may hold besides the parameters.
    """

    checkpoint: Checkpoint
    config: DSparkConfig
    beside: frozenset[str]


def fit_dspark(
    checkpoint: Checkpoint, config: DSparkConfig, target: LoadedModel, tokenizer: Tokenizer, options: DSparkOptions
) -> FittingDSpark:
    """Check a drafter against its target, from its config and the shapes of its tensors.

    Raises:
        ConfigError, CheckpointError: naming the key or tensor, its value and what is expected.
    """
    _check_bits(checkpoint, options.bits)
    named = Unprefixed(checkpoint)
    infos = named.infos
    config = _with_tensors(config, checkpoint.config, infos, target.config.hidden)
    if options.qk_norm is not None:
        config = replace(config, qk_norm=options.qk_norm)
    _check_vocabulary(config, target.config.vocab, tokenizer)
    _check_taps(config, target.config.layers)
    _check_widths(checkpoint, config, infos, target.config.hidden)
    _check_markov(config, infos)
    stored = any(info.dtype.startswith("AFFINE") for info in infos.values())
    tensors = Rounded(named, options.bits) if options.bits < 16 and not stored else named
    norms = ("q_norm.weight", "k_norm.weight") if config.qk_norm is QKNorm.NONE else ()
    unused = [name for name in infos if norms and name.endswith(norms)]
    return FittingDSpark(replace(checkpoint, tensors=tensors), config, frozenset({*TRAINING_ONLY, *MAPS, *unused}))


def _with_tensors(
    config: DSparkConfig, stated: Mapping[str, Any], infos: Mapping[str, TensorInfo], target_hidden: int
) -> DSparkConfig:
    """The config with what only the tensors tell."""
    confidence = "confidence_head.proj.weight" in infos or "enable_confidence_head" in unpack(stated).fields
    w1 = infos.get("markov_head.markov_w1.weight")
    rows = config.draft_vocab if w1 is not None and w1.shape[:1] == (config.draft_vocab,) else config.vocab
    own_embedding, own_head = "embed_tokens.weight" in infos, "lm_head.weight" in infos
    return replace(
        config,
        target_hidden=target_hidden,
        markov_rows=rows,
        confidence=config.confidence and confidence,
        own_embedding=own_embedding,
        own_head=own_head,
    )


def _check_bits(checkpoint: Checkpoint, bits: int) -> None:
    reason = "fewer bits land fewer drafts and save no time: the drafter's part of a round is small"
    if bits not in BITS:
        raise ConfigError(f"--drafter-bits is {bits}; 16 or 8 is expected: {reason}")
    for name, info in checkpoint.tensors.infos.items():
        if info.dtype.startswith("AFFINE") and info.dtype != "AFFINE8":
            raise CheckpointError(
                info.file,
                f"quantized drafters have 8 bits, since {reason}",
                tensor=name,
                found=f"{info.dtype.removeprefix('AFFINE')} bits",
                expected="8 bits, or weights that are not quantized",
            )


def _check_vocabulary(config: DSparkConfig, vocab: int, tokenizer: Tokenizer) -> None:
    """Published drafters carry no tokenizer, so that mostly the number of tokens has to tell."""
    tokens = tokenizer.vocab_size
    if abs(config.vocab - vocab) > PADDING or config.vocab < tokens:
        raise ConfigError(
            f"config.json: vocab_size is {config.vocab}; the model has {tokens} tokens in {vocab} rows, which may "
            f"differ by {PADDING} rows of padding. Give a drafter that was trained for this model"
        )
    if config.vocabulary_sha256 is not None and config.vocabulary_sha256 != vocabulary_hash(tokenizer):
        raise ConfigError(
            f"config.json: vocabulary_sha256 is {config.vocabulary_sha256}, of other tokens than the model's. "
            "Give a drafter that was trained for this model"
        )
    if config.mask_token >= vocab:
        raise ConfigError(
            f"config.json: mask_token_id is {config.mask_token}; a token of the model is expected, below {vocab}"
        )


def _check_taps(config: DSparkConfig, layers: int) -> None:
    if config.target_layers not in (None, layers):
        raise ConfigError(
            f"config.json: num_target_layers is {config.target_layers}; the model has {layers}. "
            "Give a drafter that was trained for this model"
        )
    for tap in config.taps:
        if tap == -1:
            raise ConfigError(
                "config.json: target_layer_ids has the embeddings (-1; 0 where layers are counted from them); only "
                f"what layers give is captured: 0 to {layers - 2} is expected"
            )
        if not 0 <= tap <= layers - 2:
            raise ConfigError(
                f"config.json: target_layer_ids has layer {tap}; 0 to {layers - 2} is expected for a model of "
                f"{layers} layers, whose last one is not captured"
            )


def _check_widths(
    checkpoint: Checkpoint, config: DSparkConfig, infos: Mapping[str, TensorInfo], target_hidden: int
) -> None:
    fc = infos.get("fc.weight")
    width = len(config.taps) * target_hidden
    if fc is not None and fc.shape != (config.hidden, width):
        raise CheckpointError(
            fc.file,
            f"made for another model: {len(config.taps)} tapped layers of this one's width {target_hidden} are {width}",
            tensor="fc.weight",
            found=fc.shape,
            expected=(config.hidden, width),
        )
    for name, own in (("embed_tokens.weight", config.own_embedding), ("lm_head.weight", config.own_head)):
        if not own and config.hidden != target_hidden:
            raise CheckpointError(
                checkpoint.path,
                f"hidden_size is {config.hidden} and the model's {target_hidden}, so that its own cannot be shared",
                tensor=name,
                expected=f"this tensor, or hidden_size {target_hidden}",
            )


def _check_markov(config: DSparkConfig, infos: Mapping[str, TensorInfo]) -> None:
    w1 = infos.get("markov_head.markov_w1.weight")
    shape = (config.markov_rows, config.markov_rank)
    if w1 is not None and w1.shape != shape:
        raise CheckpointError(
            w1.file,
            "another vocabulary or rank (vocab_size, draft_vocab_size, markov_rank)",
            tensor="markov_head.markov_w1.weight",
            found=w1.shape,
            expected=f"{shape}" if config.vocab == config.draft_vocab else f"{shape} or with {config.draft_vocab} rows",
        )
