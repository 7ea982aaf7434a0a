"""`tfjax doctor`: versions, jax plugins, devices, caches, default model and a short self-test of the arithmetic."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from tfjax import __version__
from tfjax.findings import Finding
from tfjax.jax_plugins import advise, installed_plugins, probe_devices
from tfjax.parsing import CommandParser
from tfjax.terminal import FAILED, OK, progress_on_stderr, run_command

NAME = "tfjax doctor"


def parser() -> CommandParser:
    """The command line of `tfjax doctor`."""
    result = CommandParser(
        prog=NAME,
        description="Check versions, jax plugins, devices, caches, the default model and the arithmetic.",
        epilog="Exit code 1 when something would keep tfjax from working.",
    )
    result.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    result.add_argument("--version", action="version", version=f"tfjax {__version__}")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the findings and returns the exit code."""
    arguments = parser().parse(argv)
    return run_command(NAME, lambda: _doctor(as_json=arguments.json))


def _doctor(*, as_json: bool) -> int:
    findings = []
    for finding in examine():
        findings.append(finding)
        if not as_json:
            print(_line(finding), flush=True)
    healthy = all(finding.state != "failed" for finding in findings)
    if as_json:
        print(json.dumps({"ok": healthy, "findings": [asdict(finding) for finding in findings]}, indent=2))
    return OK if healthy else FAILED


def _line(finding: Finding) -> str:
    remedy = f"\n{'':10}{finding.remedy}" if finding.remedy else ""
    return f"{finding.state:8}  {finding.what}: {finding.found}{remedy}"


def examine() -> Iterator[Finding]:
    """Looks at everything, cheap things first."""
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield from packages()
    yield from advise(installed_plugins())
    runs = True
    for finding in probe_devices():
        runs = runs and finding.state != "failed"
        yield finding
    yield from caches()
    model = default_model()
    if isinstance(model, Finding):
        yield model
        return
    yield Finding("default model", "ok", str(model))
    if runs:
        yield self_test(model)


def packages() -> Iterator[Finding]:
    """tfjax's own requirements against what is installed."""
    from packaging.requirements import Requirement

    versions = [f"tfjax {__version__}"]
    for text in metadata.requires("tfjax") or ():
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Finding(requirement.name, "failed", "not installed", f"pip install '{requirement}'")
            continue
        versions.append(f"{requirement.name} {version}")
        if not requirement.specifier.contains(version, prereleases=True):
            wanted = f"{version}, needs {requirement.specifier}"
            yield Finding(requirement.name, "failed", wanted, f"pip install '{requirement}'")
    yield Finding("packages", "ok", ", ".join(versions))


def caches() -> Iterator[Finding]:
    """The directories that make starts fast."""
    from tfjax.checkpoints.cache import cache_home

    home = cache_home()
    place = next(path for path in (home, *home.parents) if path.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        remedy = "Make it writable, or set XDG_CACHE_HOME to a directory that is."
        yield Finding("cache", "warning", f"{home} cannot be written, so each start compiles and reads again", remedy)
        return
    size = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
    yield Finding("cache", "ok", f"{home}, {size / 2**20:.1f} MiB")


def default_model() -> Path | Finding:
    """The model that `tfjax serve` takes when none is named, or why it is not here."""
    from tfjax.checkpoints import CheckpointError
    from tfjax.checkpoints.resolve import resolve_model

    try:
        return resolve_model(None, offline=True, progress=lambda phase, fraction: None)
    except CheckpointError as error:
        return Finding("default model", "warning", "not here, so there is no self-test", str(error))


def self_test(path: Path) -> Finding:
    """The engine's own proof on the default model, set up as `tfjax serve` would: compiles, then compares bits."""
    from tfjax.config import ServeConfig
    from tfjax.runtime import prepare_runtime

    if "jax" not in sys.modules:
        prepare_runtime()
    from tfjax.checkpoints import open_checkpoint
    from tfjax.engine import load
    from tfjax.engine.fitting import fit_memory
    from tfjax.engine.weights import load_model

    config = ServeConfig()
    with progress_on_stderr() as progress:
        model = load_model(open_checkpoint(path), config.dtype, progress)
        # With the prompt cache of a server, so that both find the same compiled programs in the cache.
        memory = fit_memory(model, asked=config.context, lanes=config.parallel, prompt_cache_bytes=None)
        try:
            _, report = load.start_backend(model, memory, progress)
        except load.NotExact as error:
            return Finding("arithmetic", "failed", str(error), "Report it with this output.")
    compared = f"{report.rows_compared} rows in {len(report.arrangements)} arrangements have the bits of single rows"
    return Finding("arithmetic", "ok", f"{report.arithmetic}: {compared}")


if __name__ == "__main__":
    sys.exit(main())
