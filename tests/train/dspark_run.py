"""Settings of a training run of a DSpark drafter that takes seconds, on the tiny target and its replies."""

from __future__ import annotations

from pathlib import Path

from tests.train import tiny_run
from tfjax.train.dspark_settings import Settings, parser, read_settings
from tfjax.train.shards import WrittenReply

FLAGS = (
    *("--layers", "1", "--inner", "16", "--taps", "1", "--block", "3", "--markov-rank", "8", "--draft-vocab", "40"),
    *("--length", "32", "--batch", "4", "--anchors", "4", "--steps-per-call", "2"),
    *("--save-every", "4", "--learning-rate", "0.01"),
)


def different_replies(count: int = 100) -> list[WrittenReply]:
    """As `tiny_run.replies`, each to a prompt of its own."""
    return [
        WrittenReply(i, "chat", float(i % 3 == 1), (200 + i % 50, 100 + i // 50, 40), tiny_run.counting(11 * i, 20))
        for i in range(count)
    ]


def base(directory: Path) -> Path:
    """With `target` and `replies` in it."""
    target = tiny_run.write_target(directory / "target")
    tiny_run.write_replies(directory / "replies", target, different_replies())
    return directory


def settings(base: Path, *flags: str, output: str = "out", minutes: str | None = None) -> Settings:
    """24 steps, or as many as take the minutes. The last of a flag counts."""
    long = ("--steps", "24") if minutes is None else ("--minutes", minutes)
    replies = () if "--replies" in flags else ("--replies", str(base / "replies"))
    words = [str(base / output), *replies, "--model", str(base / "target"), *FLAGS, *long, *flags]
    return read_settings(parser().parse(words))
