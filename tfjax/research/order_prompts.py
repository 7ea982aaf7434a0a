"""What `tfjax research order` has a model continue: code to complete, and questions."""

from __future__ import annotations

PROMPTS = (
    'def mean(values: list[float]) -> float:\n    """The arithmetic mean."""\n',
    "import json\nfrom pathlib import Path\n\n\ndef read_settings(path: Path) -> dict[str, str]:\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    'import argparse\n\n\ndef main():\n    parser = argparse.ArgumentParser(description="Count words in files.")\n',
    "def test_sorted_keeps_equal_items_in_order():\n",
    "for number in range(1, 101):\n    if number % 15 == 0:\n",
    "Write a Python function that reverses the words of a sentence.",
    "What does a hash table do, and when is it slow?",
    "Explain in a few sentences why the sky is blue.",
    "List ten things to take along on a hike.",
    "Summarise in one sentence: The library opens at nine and closes at six, but on Sundays it stays closed.",
    "Translate into French: Where is the next railway station?",
)
