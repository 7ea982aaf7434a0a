"""The host-side round loop: pure Python, no arrays."""
