"""Joins models and lanes: one thread owns the device and the round loop."""
