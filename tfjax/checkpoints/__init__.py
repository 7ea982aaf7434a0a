"""Reads checkpoints: safetensors directories and GGUF files."""
