"""Flax modules: one file per architecture."""
