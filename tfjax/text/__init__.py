"""Text: tokenizers, incremental decoding, stop strings and chat templates. Imports no jax."""

from tfjax.text.loading import load_tokenizer
from tfjax.text.tokenizer import Tokenizer

__all__ = ["Tokenizer", "load_tokenizer"]
