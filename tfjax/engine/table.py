"""The table of frequent continuations, read from its file."""

from __future__ import annotations

import hashlib
import struct

from tfjax.text.tokenizer import Tokenizer


def vocabulary_hash(tokenizer: Tokenizer) -> str:
    """SHA-256 over every token's bytes and whether it is special: equal for equal vocabularies in any file format."""
    digest = hashlib.sha256()
    for token in range(tokenizer.vocab_size):
        text = tokenizer.token_bytes(token)
        digest.update(struct.pack("<I?", len(text), tokenizer.is_special(token)) + text)
    return digest.hexdigest()
