"""What a report says about where it was made. No names of people or machines, no paths."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from tfjax import __version__
from tfjax.bench.client import ServerFacts
from tfjax.bench.text import say
from tfjax.readable_json import readable_json
from tfjax.terminal import CommandError

PACKAGES = ("jax", "jaxlib", "flax", "httpx2", "uvicorn")


def client_facts() -> dict[str, Any]:
    """The machine and versions on which the bench command runs."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "versions": {"python": platform.python_version(), "tfjax": __version__}
        | {name: found for name in PACKAGES if (found := _version(name)) is not None},
    }


def server_facts(facts: ServerFacts) -> dict[str, Any]:
    """What the server said of itself: its settings, device, versions and checkpoint, where it is tfjax."""
    said = facts.capabilities or {}
    return {"model": facts.model, "engine": said.get("engine"), "settings": _without_paths(said.get("config"))}


def _without_paths(settings: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if settings is None:
        return None
    hidden = {"api_key", "api_key_file", "allowed_host", "cors_origin", "host", "port"}
    shown = {name: value for name, value in settings.items() if name not in hidden}
    return {
        name: Path(value).name if name in ("model", "drafter") and value else value for name, value in shown.items()
    }


def prompts_sha256() -> str:
    """Of the file of prompts."""
    return hashlib.sha256(resources.files("tfjax.bench").joinpath("prompts.toml").read_bytes()).hexdigest()


def report(command: str, options: Mapping[str, Any], label: str | None) -> dict[str, Any]:
    """The head of every JSON report."""
    return {
        "command": f"tfjax bench {command}",
        "label": label,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": dict(options),
        "prompts_sha256": prompts_sha256(),
        "client": client_facts(),
    }


def write_json(file: Path | None, facts: Mapping[str, Any]) -> None:
    """Writes a report where one is wanted.

    Raises:
        CommandError: it cannot be written.
    """
    if file is not None:
        write_text(file, readable_json(facts) + "\n")


def write_text(file: Path, text: str) -> None:
    """As `write_json`, for any text."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file} cannot be written ({error.strerror}); give another file") from None
    say(f"{file} written")


def check_writable(files: Sequence[Path | None]) -> None:
    """Fails before the measuring instead of after it.

    Raises:
        CommandError: a file's folder is not there.
    """
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise CommandError(f"{file.parent} is no directory; make it, or give another file")


def processor() -> str:
    """The processor's name as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
