"""Which jax plugins are installed, what is known about them, and what devices jax then finds. Imports no jax itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import metadata

from tfjax.findings import Finding

GROUP = "jax_plugins"

# A plugin that breaks jax crashes the process that imports it, hence a process of its own.
PROBE = """
import json, jax
devices = [f"{device.device_kind} ({device.platform})" for device in jax.devices()]
total = int(jax.numpy.arange(8).sum())
print(json.dumps({"backend": jax.default_backend(), "devices": devices, "total": total}))
"""
PROBE_TIMEOUT_S = 120

APPLE_PACKAGES = {
    "jax-metal": "METAL",
    "jax-mps": "mps",
    "jax-metallib": "mps",
    "jax-graft": "mtl",
    "metaljax": "metal",
}
"""Packages of Apple plugins and the platform names that they register."""

APPLE_PLATFORMS = frozenset(APPLE_PACKAGES.values())

JAX_METAL_NEWEST = (0, 5, 0)
USE_INSTEAD = "pip install 'tfjax[apple]'"


@dataclass(frozen=True, slots=True)
class Plugin:
    """An installed package that gives jax a platform."""

    package: str
    version: str


def installed_plugins() -> list[Plugin]:
    """The plugins that jax would load: those with an entry point, and Apple's by name, as some have none."""
    found = {}
    for entry in metadata.entry_points(group=GROUP):
        name, version = (entry.dist.name, entry.dist.version) if entry.dist is not None else (entry.name, "?")
        package = name.lower().replace("_", "-")
        found[package] = Plugin(package, version)
    for package in APPLE_PACKAGES.keys() - found.keys():
        installed = _version(package)
        if installed is not None:
            found[package] = Plugin(package, installed)
    return sorted(found.values(), key=lambda plugin: plugin.package)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def advise(plugins: Collection[Plugin], jax_version: str | None = None) -> Iterator[Finding]:
    """What is known about the installed plugins beside this jax (the installed one, unless another is named)."""
    jax_version = jax_version or _version("jax") or "0"
    if not plugins:
        yield Finding("jax plugins", "ok", "none, jax uses the CPU")
    for plugin in plugins:
        shown = f"{plugin.package} {plugin.version}"
        platform = APPLE_PACKAGES.get(plugin.package)
        if plugin.package == "jax-metal" and _release(jax_version) > JAX_METAL_NEWEST:
            yield Finding(
                "jax plugin",
                "failed",
                f"{shown} works with jax <= 0.5.0 only; with it jax {jax_version} fails on every array",
                f"pip uninstall jax-metal, then {USE_INSTEAD}",
            )
        elif plugin.package == "metaljax":
            note = "the CPU stays the default; JAX_PLATFORMS=metal,cpu chooses it"
            yield Finding("jax plugin", "ok", f"{shown}, platform {platform}; {note}")
        elif platform is not None:
            yield Finding("jax plugin", "ok", f"{shown}, platform {platform}; jax takes it as default")
        else:
            yield Finding("jax plugin", "ok", shown)
    yield from _clashes(plugins)


def _clashes(plugins: Collection[Plugin]) -> Iterator[Finding]:
    by_platform: dict[str, set[str]] = defaultdict(set)
    for plugin in plugins:
        if plugin.package in APPLE_PACKAGES:
            by_platform[APPLE_PACKAGES[plugin.package]].add(plugin.package)
    for platform, packages in by_platform.items():
        if len(packages) > 1:
            first, *others = sorted(packages)
            found = f"{' and '.join([first, *others])} both register platform {platform}"
            yield Finding("jax plugins", "failed", found, f"pip uninstall {' '.join(others)}")


def _release(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split(".")[:3]:
        digits = "".join(character for character in part if character.isdigit())
        numbers.append(int(digits) if digits else 0)
    return tuple(numbers)


def probe_devices(code: str = PROBE, timeout_s: float = PROBE_TIMEOUT_S) -> Iterator[Finding]:
    """Lets jax list its devices and add a few numbers, in a process of its own."""
    remedy = "Uninstall the jax plugins named above, or set JAX_PLATFORMS=cpu, and try again."
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        yield Finding("devices", "failed", f"jax did not answer within {timeout_s:g} s", remedy)
        return
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        yield Finding("devices", "failed", f"jax does not run: {last}", remedy)
        return
    answer = json.loads(lines[-1])
    if answer["total"] != 28:
        yield Finding("devices", "failed", f"0 + 1 + ... + 7 gave {answer['total']} on {answer['backend']}", remedy)
        return
    kind = "apple" if answer["backend"] in APPLE_PLATFORMS else answer["backend"]
    yield Finding("devices", "ok", f"{', '.join(answer['devices'])}; default backend {kind}")
