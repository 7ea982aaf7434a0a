"""The one error of this package."""

from __future__ import annotations

from pathlib import Path


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, said so that its owner can act.

    The message names the file, the tensor where one is concerned, what was found, what was expected, and the remedy.
    """

    def __init__(
        self,
        file: Path | str,
        problem: str,
        *,
        tensor: str | None = None,
        found: object = None,
        expected: object = None,
        remedy: str | None = None,
    ) -> None:
        self.file = str(file)
        self.problem = problem
        self.tensor = tensor
        self.found = found
        self.expected = expected
        self.remedy = remedy
        parts = [f"{file}: {problem}"]
        if tensor is not None:
            parts.append(f"tensor {tensor}")
        if found is not None:
            parts.append(f"found {found}")
        if expected is not None:
            parts.append(f"expected {expected}")
        message = "; ".join(parts)
        super().__init__(f"{message}. {remedy}" if remedy else message)
