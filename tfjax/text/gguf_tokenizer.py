"""A tokenizer rebuilt from GGUF metadata.

Pre-tokenizers are those that a test proves against llama.cpp; any other name is refused, because a wrong split gives
other token ids without an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tfjax.checkpoints.gguf_index import GgufFile, GgufVocabulary
from tfjax.text.pieces import SPACE_MARK, UnsupportedTokenizer

# tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def build(file: GgufFile) -> Tokenizer:
    """The tokenizer of a GGUF file.

    Raises:
        UnsupportedTokenizer: there is none, its kind or pre-tokenizer is unknown, or its arrays do not fit together.
        CheckpointError: the file cannot be read any more.
    """
    vocabulary = file.vocabulary()
    _check_arrays(vocabulary)
    model = file.metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        tokenizer = _byte_level(vocabulary, str(file.metadata.get("tokenizer.ggml.pre", "default")))
    elif model == "llama":
        tokenizer = _sentencepiece(vocabulary, file.metadata.get("tokenizer.ggml.add_space_prefix", True) is True)
    else:
        raise UnsupportedTokenizer(f"tokenizer.ggml.model is {model!r}; supported are 'gpt2' and 'llama'")
    _add_tokens(tokenizer, vocabulary)
    return tokenizer


def adds_bos(file: GgufFile) -> bool:
    """Whether a prompt starts with the BOS token: as the metadata says, else as is usual for the kind of tokenizer."""
    said = file.metadata.get("tokenizer.ggml.add_bos_token")
    if isinstance(said, bool):
        return said
    usual = file.metadata.get("tokenizer.ggml.model") == "llama"
    pre = file.metadata.get("tokenizer.ggml.pre")
    return usual or ALIASES.get(str(pre), pre) == "llama-bpe"


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )


PRE_TOKENIZERS: Mapping[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(False),
    "llama-bpe": lambda: _split(_LLAMA3_SPLIT),
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    ),
}
ALIASES: Mapping[str, str] = {"lfm2": "llama-bpe"}
"""Names for which llama.cpp has the same rule as for another one."""

# Llama 3 takes a word that is a token whole, whatever its merges say.
_WHOLE_WORDS_FIRST = frozenset({"llama-bpe"})


def _byte_level(vocabulary: GgufVocabulary, pre: str) -> Tokenizer:
    rule = ALIASES.get(pre, pre)
    if rule not in PRE_TOKENIZERS:
        raise UnsupportedTokenizer(
            f"tokenizer.ggml.pre is {pre!r}; supported are {', '.join(sorted({*PRE_TOKENIZERS, *ALIASES}))}. "
            "Use the model's safetensors directory, whose tokenizer.json says how to split."
        )
    merges = [_pair(merge) for merge in vocabulary.merges]
    tokenizer = _tokenizer(vocabulary, merges, ignore_merges=rule in _WHOLE_WORDS_FIRST)
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[rule]()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(vocabulary: GgufVocabulary, space_prefix: bool) -> Tokenizer:
    if len(vocabulary.scores) != len(vocabulary.tokens):
        raise UnsupportedTokenizer(f"{len(vocabulary.tokens)} tokens, but {len(vocabulary.scores)} scores")
    unknown = [token for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True) if kind == UNKNOWN]
    tokenizer = _tokenizer(
        vocabulary,
        merges_by_score(vocabulary),
        unk_token=unknown[0] if unknown else None,
        fuse_unk=True,
        byte_fallback=True,
    )
    steps: list[normalizers.Normalizer] = [normalizers.Prepend(SPACE_MARK)] if space_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE_MARK)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def merges_by_score(vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    """Every way to join two tokens into a third, best score first: sentencepiece's order written as BPE merges."""
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    ranked = []
    for token, score, kind in zip(vocabulary.tokens, vocabulary.scores, vocabulary.types, strict=True):
        if kind != NORMAL:
            continue
        for cut in range(1, len(token)):
            left, right = ids.get(token[:cut]), ids.get(token[cut:])
            if left is not None and right is not None:
                ranked.append((-score, left, right))
    ranked.sort()
    return [(vocabulary.tokens[left], vocabulary.tokens[right]) for _, left, right in ranked]


def _tokenizer(vocabulary: GgufVocabulary, merges: list[tuple[str, str]], **options: object) -> Tokenizer:
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    try:
        return Tokenizer(models.BPE(vocab=ids, merges=merges, **options))
    except Exception as error:  # the library raises nothing narrower
        raise UnsupportedTokenizer(f"the merges do not fit the vocabulary: {error}") from error


def _pair(merge: str) -> tuple[str, str]:
    # A token may itself start with a space, never contain one further on.
    cut = merge.find(" ", 1)
    if cut < 0:
        raise UnsupportedTokenizer(f"tokenizer.ggml.merges holds {merge!r}; expected two tokens with a space between")
    return merge[:cut], merge[cut + 1 :]


def _check_arrays(vocabulary: GgufVocabulary) -> None:
    count = len(vocabulary.tokens)
    if not count:
        raise UnsupportedTokenizer("the file has no tokenizer (tokenizer.ggml.tokens)")
    if len(vocabulary.types) != count:
        raise UnsupportedTokenizer(f"{count} tokens, but {len(vocabulary.types)} token types")
    if len(set(vocabulary.tokens)) != count:
        twice = Counter(vocabulary.tokens).most_common(1)[0][0]
        raise UnsupportedTokenizer(f"token {twice!r} is in the vocabulary twice")


def _add_tokens(tokenizer: Tokenizer, vocabulary: GgufVocabulary) -> None:
    """Registers the tokens that are taken whole from the text, before it is split."""
    whole = [
        AddedToken(token, special=kind != USER_DEFINED, normalized=False)
        for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]
    tokenizer.add_tokens(whole)
