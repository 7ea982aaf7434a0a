"""Measures for experiments on models, computed from checkpoints."""
