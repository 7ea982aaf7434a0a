"""tfjax beside transformers and llama.cpp: same weights, same prompts, greedy, one interleaved run.

`python -m benchmarks.peers --peers DIRECTORY --output FILE`; DIRECTORY is the environment that
`python tests/goldens/environment.py DIRECTORY` makes. Every repetition runs all engines on a prompt one after the
other, in rotated order, so that a ratio compares neighbours in time. All figures but ratios depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.suite import LICENSE, load_suite
from tfjax.checkpoints import open_checkpoint
from tfjax.checkpoints.resolve import resolve_model
from tfjax.text.chat_template import ChatTemplate
from tfjax.text.loading import load_tokenizer

WORKERS = Path(__file__).resolve().parent / "workers"
CONTEXTS = (100, 1000)

type Results = dict[str, dict[str, list[Any]]]
"""Column -> job -> one result per repetition."""


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt. `everyone`: run by the other engines too."""

    name: str
    prompt: tuple[int, ...]
    everyone: bool


class Worker:
    """One engine in its own process; it idles while the others work."""

    def __init__(self, command: Sequence[str]):
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=WORKERS,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(WORKERS)},
        )
        hello = self._read()
        self.name: str = hello["engine"]
        self.versions: dict[str, str] = hello["versions"]

    def run(self, job: Job, max_tokens: int, draft: bool) -> dict[str, Any]:
        assert self._process.stdin is not None
        request = {"prompt": job.prompt, "max_tokens": max_tokens, "draft": draft}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"{self._process.args!r} ended with code {self._process.wait()}; its last words are above")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the comparison: a worker, with drafts or without."""

    name: str
    worker: Worker
    draft: bool
    everything: bool


def make_jobs(model: Path) -> list[Job]:
    """A plain text of each context length, then every short prompt of the suite."""
    tokenizer = load_tokenizer(open_checkpoint(model))
    text = tuple(tokenizer.encode(LICENSE.read_text(encoding="utf-8")))
    template = ChatTemplate(tokenizer.chat_template or "", tokenizer.bos_token, tokenizer.eos_token)
    jobs = [Job(f"context {rows}", text[:rows], True) for rows in CONTEXTS]
    for prompt in load_suite("kinds"):
        if prompt.kind != "long":
            ids = tuple(tokenizer.encode(template.render(list(prompt.messages))))
            jobs.append(Job(prompt.kind, ids, prompt.kind == "edit"))
    return jobs


def start_columns(model: Path, peers: Path | None) -> list[Column]:
    columns = []
    for dtype in ("bfloat16", "float32"):
        worker = Worker([sys.executable, "tfjax_worker.py", str(model), dtype])
        columns += [
            Column(f"{worker.name} drafts {word}", worker, draft, True)
            for word, draft in (("off", False), ("on", True))
        ]
    if peers is not None:
        python = str(peers / "bin" / "python")
        for script, option in (
            ("torch_worker.py", "bfloat16"),
            ("torch_worker.py", "float32"),
            ("llama_worker.py", "plain"),
            ("llama_worker.py", "lookup"),
        ):
            worker = Worker([python, script, str(model), option])
            columns.append(Column(worker.name, worker, False, False))
    return columns


def measure(columns: Sequence[Column], jobs: Sequence[Job], max_tokens: int, repetitions: int) -> Results:
    """Run everything; the first repetition is untimed and warms up."""
    results: Results = defaultdict(lambda: defaultdict(list))
    for repetition in range(repetitions + 1):
        for number, job in enumerate(jobs):
            turn = (repetition + number) % len(columns)
            for column in (*columns[turn:], *columns[:turn]):
                if column.everything or job.everyone:
                    result = column.worker.run(job, 8 if repetition == 0 else max_tokens, column.draft)
                    if repetition:
                        results[column.name][job.name].append(result)
            print(f"repetition {repetition}, {job.name}: done", file=sys.stderr, flush=True)
    return results


def paired(ours: Sequence[Any], theirs: Sequence[Any], key: str) -> dict[str, float]:
    """Median, least and largest of the ratios of neighbouring runs."""
    ratios = [a[key] / b[key] for a, b in zip(ours, theirs, strict=True)]
    return {
        "median": round(statistics.median(ratios), 3),
        "least": round(min(ratios), 3),
        "largest": round(max(ratios), 3),
    }


def comparisons(results: Results) -> list[tuple[str, str, str, str, str]]:
    """(what, job, our column, the other column, figure): one number format each, and drafts on against off."""
    found = []
    for dtype in ("bfloat16", "float32"):
        off, on, peer = f"tfjax {dtype} drafts off", f"tfjax {dtype} drafts on", f"transformers {dtype}"
        for job in results[off]:
            found.append((f"{dtype} decode, drafts on / off", job, on, off, "decode_tps"))
            if job in results.get(peer, {}):
                found.append((f"{dtype} plain decode / transformers", job, off, peer, "decode_tps"))
                found.append((f"{dtype} time to first token / transformers", job, off, peer, "ttft_ms"))
    for peer in ("llama.cpp Q4_1 plain", "llama.cpp Q4_1 lookup"):
        ours = "tfjax bfloat16 drafts on"
        found += [(f"bfloat16 drafts on / {peer}", job, ours, peer, "decode_tps") for job in results.get(peer, {})]
    return found


def ratios(results: Results) -> list[dict[str, Any]]:
    """Every comparison with the ratio of neighbouring runs."""
    return [
        {"what": what, "job": job, **paired(results[ours][job], results[other][job], figure)}
        for what, job, ours, other, figure in comparisons(results)
    ]


def summary(runs: Sequence[Any]) -> dict[str, float]:
    """Medians of one job in one column."""
    return {figure: round(statistics.median(run[figure] for run in runs), 1) for figure in ("ttft_ms", "decode_tps")}


def equal_tokens(results: Results) -> bool:
    """Whether drafts changed no token in any run."""
    return all(
        on["tokens"] == off["tokens"]
        for dtype in ("bfloat16", "float32")
        for job, runs in results[f"tfjax {dtype} drafts on"].items()
        for on, off in zip(runs, results[f"tfjax {dtype} drafts off"][job], strict=True)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="environment of the other engines; left out, only tfjax runs")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each reply (default: 128)")
    parser.add_argument("--repetitions", type=int, default=3, help="timed runs of each (default: 3)")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    model = resolve_model(None, offline=True, progress=lambda phase, fraction: None)
    jobs = make_jobs(model)
    columns = start_columns(model, arguments.peers)
    results = measure(columns, jobs, arguments.tokens, arguments.repetitions)
    rows, equal = ratios(results), equal_tokens(results)
    for row in rows:
        print(f"{row['what']:45s} {row['job']:14s} {row['median']:6.2f}  ({row['least']:.2f} to {row['largest']:.2f})")
    print("tfjax drafted tokens equal plain ones in every run:", equal)
    medians = {name: {job: summary(runs) for job, runs in by_job.items()} for name, by_job in results.items()}
    facts = {
        "command": "python -m benchmarks.peers " + " ".join(sys.argv[1:]),
        "machine": {"cores": os.cpu_count(), "processor": _processor(), "python": platform.python_version()},
        "versions": {name: value for column in columns for name, value in column.worker.versions.items()},
        "model": model.name,
        "tokens": arguments.tokens,
        "repetitions": arguments.repetitions,
        "prompt_rows": {job.name: len(job.prompt) for job in jobs},
        "drafted_equals_plain": equal,
        "ratios": rows,
        "medians": medians,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(facts, indent=1) + "\n")
    for worker in {column.worker for column in columns}:
        worker.close()
    return 0 if equal else 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    sys.exit(main())
