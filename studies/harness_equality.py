"""lm-evaluation-harness in its remote mode beside `regard score`: the same pairs chosen, the same perplexity.

    python studies/harness_equality.py PAIRS.jsonl.gz LINES.txt RUN… [--pairs 400] [--lines 60]

PAIRS has `sentence_good` and `sentence_bad` (BLiMP's form), LINES one text per line. Needs "lm-eval[api]".
Both tasks are tasks of the harness; each text is a line with its line end, which `regard score` scores, too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import regard

TASKS: dict[str, dict[str, Any]] = {
    "pairs": {
        "output_type": "multiple_choice",
        "doc_to_text": "",
        "doc_to_choice": r"{{[sentence_good ~ '\n', sentence_bad ~ '\n']}}",
        "doc_to_target": 0,
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    },
    "lines": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{line}}\n",
        "metric_list": [{"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False}],
    },
}


def asked_remotely(run: Path, held: int, files: dict[str, Path]) -> tuple[dict[str, list[Any]], float, str]:
    """What the harness got for each task and document, its bits per byte, and its version."""
    import lm_eval  # type: ignore[import-not-found]
    from lm_eval.tasks import TaskManager  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        for name, task in TASKS.items():
            data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(files[name])}}}
            written = json.dumps({"task": f"own_{name}", "test_split": "test", **data, **task})
            (Path(folder) / f"{name}.yaml").write_text(written)  # JSON is YAML
        command = [sys.executable, "-m", "regard", "serve", str(run), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            how = {"base_url": f"{address}v1/completions", "model": run.name, "tokenizer_backend": "remote"}
            try:
                found = lm_eval.simple_evaluate(
                    "local-completions", model_args={**how, "max_length": held - 1}, batch_size=16,
                    tasks=[f"own_{name}" for name in TASKS], task_manager=TaskManager(include_path=folder),
                    log_samples=True, bootstrap_iters=0,
                )  # fmt: skip
            finally:
                server.terminate()
    samples = {name: sorted(found["samples"][f"own_{name}"], key=lambda one: one["doc_id"]) for name in TASKS}
    bits = next(value for key, value in found["results"]["own_lines"].items() if key.startswith("bits_per_byte,"))
    return {name: [one["resps"] for one in samples[name]] for name in TASKS}, float(bits), lm_eval.__version__


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("pairs_file", type=Path)
    options.add_argument("lines_file", type=Path)
    options.add_argument("runs", type=Path, nargs="+")
    options.add_argument("--pairs", type=int, default=400)
    options.add_argument("--lines", type=int, default=60)
    given = options.parse_args()
    with gzip.open(given.pairs_file, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    rows = rows[:: max(1, len(rows) // given.pairs)][: given.pairs]  # some of every kind
    loaded = [regard.load(run, device="cpu") for run in given.runs]

    def fits(line: str) -> bool:
        """A longer line is cut into windows, and the harness cuts it elsewhere than `regard score`."""
        return all(len(run.tokenizer.encode(line)) + 3 <= (run.model.context or 4096) for run in loaded)

    lines = [line for line in given.lines_file.read_text().splitlines() if line.strip() and fits(line)][: given.lines]
    with tempfile.TemporaryDirectory() as folder:
        files = {"pairs": Path(folder) / "pairs.jsonl", "lines": Path(folder) / "lines.jsonl"}
        files["pairs"].write_text("".join(json.dumps(row) + "\n" for row in rows))
        files["lines"].write_text("".join(json.dumps({"line": line}) + "\n" for line in lines))
        print("| model | same choice as `regard score` | largest difference, pairs | rolling | bits per byte, both |")
        print("|---|---|---|---|---|")
        for run, own in zip(given.runs, loaded):
            found, bits, version = asked_remotely(run, own.model.context or 4096, files)
            texts = [text for row in rows for text in (row["sentence_good"], row["sentence_bad"])]
            ours = [score.log_probability for score in own.score(texts)]
            theirs = [resp[0][0] for one in found["pairs"] for resp in one]
            chosen = [(a - b, c - d) for a, b, c, d in zip(ours[::2], ours[1::2], theirs[::2], theirs[1::2])]
            clear = [(one, other) for one, other in chosen if one]
            same = sum((one > 0) == (other > 0) for one, other in clear)
            rolled = [score.log_probability for score in own.score(lines)]
            heard = [one[0][0] if isinstance(one[0], list) else one[0] for one in found["lines"]]
            size = sum(len(f"{line}\n".encode()) for line in lines)
            apart = [max(abs(a - float(b)) for a, b in zip(some, others))
                     for some, others in ((ours, theirs), (rolled, heard))]  # fmt: skip
            ties = f", {len(chosen) - len(clear)} ties" if len(clear) < len(chosen) else ""
            print(
                f"| {run.name} | {same} of {len(clear)}{ties} | {apart[0]:.1e} nats | {apart[1]:.1e} nats | "
                f"{bits:.4f}, {-sum(rolled) / math.log(2) / size:.4f} |",
                flush=True,
            )
    print(f"\nlm-eval {version}, {len(rows)} pairs, {len(lines)} lines")


if __name__ == "__main__":
    main()
