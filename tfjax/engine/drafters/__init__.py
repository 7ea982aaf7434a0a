"""Drafters that run on the device beside the target."""
