"""A command line that answers wrong usage in one line, with the nearest flag."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Never


class CommandParser(argparse.ArgumentParser):
    """argparse without abbreviations, and without a page of usage before what was wrong."""

    def __init__(self, **options: object) -> None:
        super().__init__(allow_abbrev=False, **options)  # type: ignore[arg-type]

    def parse(self, words: Sequence[str] | None) -> argparse.Namespace:
        """The arguments; words that are none end the program (exit code 2)."""
        arguments, unknown = self.parse_known_args(words)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._suggestion(unknown)}")
        return arguments

    def error(self, message: str) -> Never:
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")

    def _suggestion(self, unknown: Sequence[str]) -> str:
        import difflib

        known = [flag for action in self._actions for flag in action.option_strings]
        for word in unknown:
            near = difflib.get_close_matches(word.partition("=")[0], known, n=1) if word.startswith("-") else []
            if near:
                return f" (did you mean {near[0]}?)"
        return ""
