"""Which implementation of an operator runs: the readable reference or the kernel of a device."""

from __future__ import annotations

import enum

import jax


class Route(enum.StrEnum):
    """An implementation. Every operator with a device route has both, under one signature."""

    REFERENCE = "reference"
    PALLAS_GPU = "pallas_gpu"


class Unsupported(ValueError):
    """A route cannot take these shapes; the message says which and what to use instead."""


LEAST_CAPABILITY = 9.0
"""Compute capability from which the device kernels run: they use Hopper's copy engine and warpgroup products."""


def chosen(wanted: str, device: jax.Device) -> tuple[Route, str]:
    """The route that `--kernels` asks for on a device, and why.

    Args:
        wanted: `auto` or `reference`.
        device: where the operators will run.
    """
    if wanted == "reference":
        return Route.REFERENCE, "--kernels reference"
    if wanted != "auto":
        raise ValueError(f"--kernels is {wanted!r}; use auto or reference")
    if device.platform != "gpu":
        return Route.REFERENCE, f"there are no device kernels for {device.platform}"
    capability = str(getattr(device, "compute_capability", "")) or "unknown"
    try:
        enough = LEAST_CAPABILITY <= float(capability) < LEAST_CAPABILITY + 1
    except ValueError:
        enough = False
    if not enough:
        return Route.REFERENCE, f"the kernels are made for compute capability 9.x and this device has {capability}"
    return Route.PALLAS_GPU, f"compute capability {capability}"
