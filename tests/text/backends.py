"""Small tokenizers for tests."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tfjax.text.pieces import SPACE_MARK, byte_alphabet


def byte_level() -> Tokenizer:
    """All 256 bytes, "ab", the special tokens <s> and </s>, and the added token <tool> that is not special."""
    pieces = ["<s>", "</s>", *byte_alphabet(), "ab"]
    backend = Tokenizer(models.BPE(vocab={piece: index for index, piece in enumerate(pieces)}, merges=[("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    backend.add_tokens([AddedToken("<tool> é", special=False)])
    return backend


def with_bos(backend: Tokenizer) -> Tokenizer:
    """The same, adding <s> in front when special tokens are asked for, as published tokenizers do."""
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return backend


def sentencepiece() -> Tokenizer:
    """A Llama-like tokenizer with byte fallback and few words."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), SPACE_MARK, "a", SPACE_MARK + "a"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    model = models.BPE(
        vocab=vocabulary, merges=[(SPACE_MARK, "a")], unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), normalizers.Replace(" ", SPACE_MARK)])
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(piece, special=True) for piece in pieces[:3]])
    return backend
