"""tfjax serves large language models on JAX; its speculative decoding never changes the output."""

__version__ = "0.1.0"
