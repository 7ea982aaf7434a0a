"""Tokenizer, incremental detokeniser, stop strings and chat templates."""
