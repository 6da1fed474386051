"""Does a page compute what Regard computes? Every system with every tokenizer, in all three formats of weights.

    python studies/page_parity.py                                        16 systems x 4 tokenizers x 3 formats
    python studies/page_parity.py gpt transformer --tokenizers bpe char --chromium
    python studies/page_parity.py --table parity.jsonl                   a table of what was printed

Each system is trained for 30 steps on sentences of the phrasebook. The program of its page runs in Node, or with
--chromium in the page itself. One line of JSON for each model and format: the largest |Δ log P|
over the vocabulary at 1,000 held-out tokens, the change of the mean loss in nats, how many of 100 greedy answers and of
100 translations by a beam of 5 differ, and for those that differ the largest lead in PyTorch: of its own first
differing token over its second best, and of its own translation's score over that of the page's. A lead of the size of
the format's error is a tie.

The bounds: fp32 at most 1e-4, fp16 at most 1e-2, int8 at most 0.01 nats of the mean loss.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import regard
from regard.corpora.phrasebook import make_pairs
from regard.exchange import page_graphs
from regard.exchange.chromium import Chromium
from regard.exchange.formats import export
from regard.exchange.page_file import answer, log_probabilities
from regard.exchange.page_weights import FORMATS
from regard.systems import catalogue

OWN = "own"
TASKS = {system.name: system.task for system in catalogue.SYSTEMS}
TOKENIZERS = ("bpe", "word", "char", "byte")
BOUNDS = {"fp32": 1e-4, "fp16": 1e-2, "int8": 0.01}
TOKENS, INPUTS, TRAINED, STEPS = 1000, 100, 3000, 30
MINE = """from torch import nn
from regard.layers.cell import Cell


class MinimalGatedUnit(Cell):
    def __init__(self, inputs, width):
        super().__init__(inputs, width)
        self.gate_input, self.gate_hidden = nn.Linear(inputs, width), nn.Linear(width, width, bias=False)
        self.input, self.hidden = nn.Linear(inputs, width), nn.Linear(width, width, bias=False)

    def step(self, x, state):
        before = state["hidden"]
        gate = (self.gate_input(x) + self.gate_hidden(before)).sigmoid()
        update = (self.input(x) + self.hidden(gate * before)).tanh()
        return {"hidden": (1 - gate) * before + gate * update, "gate": gate, "update": update}
"""
# The page's worker, which posts its answers to this thread. Log-probabilities go to a file of doubles.
NODE = """
const fs = require("fs"), given = JSON.parse(fs.readFileSync(0)), text = fs.readFileSync(given.page, "utf8");
const held = (id) => text.match(new RegExp(`<script type="[\\\\w/]+" id="${id}">(.*?)</script>`, "s"))[1];
const waiting = new Map();
globalThis.postMessage = (one) => { if (!("progress" in one)) waiting.get(one.id)(one); };
(0, eval)(held("worker"));
let last = 0;
const ask = (name, what) => new Promise((done, failed) => {
  waiting.set(++last, (one) => ("problem" in one ? failed(new Error(one.problem)) : done(one.answer)));
  onmessage({ data: { id: last, name, given: what } });
});
(async () => {
  await ask("open", { made: JSON.parse(held("model")), letters: held("weights") });
  const out = fs.openSync(given.out, "w"), answers = [];
  for (const row of given.rows) for (const logs of await ask("logs", row)) fs.writeSync(out, Float64Array.from(logs));
  for (const [name, what] of given.asked) answers.push(await ask(name, what));
  process.stdout.write(JSON.stringify(answers), () => process.exit(0)); // its message ports would keep it running
})();
"""


def pairs_of(seed: int, count: int) -> list[tuple[str, str]]:
    return [(one.source, one.target) for one in make_pairs(count, seed=seed, longest=5)]


def label_of(sentence: str) -> str:
    return {"?": "question", "!": "exclamation"}.get(sentence[-1], "negative" if " not " in sentence else "statement")


def trained(system: str, tokenizer: str, folder: Path) -> Any:
    """The system after a moment of training, in `folder`."""
    name, pairs = system, pairs_of(0, TRAINED)
    task = TASKS.get(system, "language model")
    data: Any = [source for source, _ in pairs]
    if task == "translation":
        data = pairs
    elif task == "classification":
        data = [(source, label_of(source)) for source in data]
    if system == OWN:
        (folder / "mine.py").write_text(MINE)
        name = f"{folder / 'mine.py'}:MinimalGatedUnit"
    training = {} if system == "ngram" else {"training": {"steps": STEPS, "device": "cpu", "threads": 1}}
    cut: dict[str, Any] = {"tokenizer": tokenizer} | ({"vocabulary": 1000} if tokenizer in ("bpe", "word") else {})
    return regard.train(name, data=data, size="tiny", run=folder / "run", seed=1, settings={"data": cut, **training})


def rows_of(run: Any, task: str, lines: list[str], targets: list[str]) -> list[dict[str, Any]]:
    """Rows of held-out tokens, TOKENS in all; of a translator the references, after their sources."""
    found: list[dict[str, Any]] = []
    for line, target in zip(lines, targets, strict=True):
        given = None if task == "language model" else [*run.source_tokenizer.encode(line), 0]
        words = [] if task == "classification" else run.tokenizer.encode(target if task == "translation" else line)
        found.append({"ids": [0, *words][: run.model.context], "source": given})
        if sum(len(one["ids"]) for one in found) >= TOKENS:
            break
    return found


def beginning(line: str) -> str:
    return " ".join(line.split(" ")[:3])


def questions(task: str, lines: list[str]) -> list[list[Any]]:
    if task == "classification":
        return [["label", {"text": line}] for line in lines]
    if task == "translation":
        return [["translated", {"text": line, "beam": beam}] for beam in (1, 5) for line in lines]
    return [["write", {"text": beginning(line), "tokens": 24, "temperature": 0}] for line in lines]


def in_node(page: Path, rows: list[Any], asked: list[Any], out: Path) -> tuple[np.ndarray, list[Any]]:
    given = json.dumps({"page": str(page), "rows": rows, "asked": asked, "out": str(out)})
    done = subprocess.run(["node", "-e", NODE], input=given, capture_output=True, text=True, check=True)
    return np.fromfile(out), json.loads(done.stdout)


def in_chromium(page: Path, rows: list[Any], asked: list[Any], out: Path) -> tuple[np.ndarray, list[Any]]:
    with Chromium.start() as browser:
        opened = browser.open_file(page)
        opened.evaluate("regard.ready")

        def ask(name: str, given: Any) -> Any:
            return opened.evaluate(f"regard.call({json.dumps(name)}, {json.dumps(given)})")

        logs = [np.array(ask("logs", row)).reshape(-1) for row in rows]
        return np.concatenate(logs), [ask(*one) for one in asked]


def text_of(task: str, found: Any) -> str:
    return str(found["facts"]["top"][0][0]["token"] if task == "classification" else found["text"])


def lead(run: Any, task: str, line: str, theirs: str) -> float:
    """How far, in nats, PyTorch's best token was ahead of its second best where the page's answer leaves its own."""
    if task == "classification":
        (_, first), (_, second) = run(line).top(2)
        return float(np.log(first / second))
    source = [*run.source_tokenizer.encode(line), 0] if task == "translation" else None
    ids = [0, *([] if source else run.tokenizer.encode(beginning(line)))]
    before, leads = "", [np.inf]
    for _ in range(200):
        logs = log_probabilities(run, ids, source)[-1]
        logs[run.forbidden] = -np.inf
        second, first = np.argsort(logs)[-2:]
        leads.append(float(logs[first] - logs[second]))
        ids.append(int(first))
        text = run.tokenizer.decode(ids[1:])
        if not theirs.startswith(text.strip() if source else text) or (source and first == 0):
            break
        if text != before:  # a character may be several tokens: while it grows, any of them may differ
            before, leads = text, [np.inf]
    return min(leads)


def beam_lead(run: Any, line: str, ours: str, theirs: str) -> float:
    """By how much the score (log P per token) of PyTorch's translation is above that of the page's, in PyTorch."""
    source = [*run.source_tokenizer.encode(line), 0]

    def score(text: str) -> float:
        ids = [*run.tokenizer.encode(text), 0]
        logs = log_probabilities(run, [0, *ids[:-1]][: run.model.context], source)
        return float(logs[np.arange(len(logs)), ids[: len(logs)]].mean())

    return score(ours) - score(theirs)


def compare(system: str, tokenizer: str, compute: Any) -> list[dict[str, Any]]:
    task = TASKS.get(system, "language model")
    held_out = pairs_of(1, TOKENS)
    lines, targets = [source for source, _ in held_out], [target for _, target in held_out]
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        run = trained(system, tokenizer, Path(scratch))
        rows, asked = rows_of(run, task, lines, targets), questions(task, lines[:INPUTS])
        ours = np.concatenate([log_probabilities(run, row["ids"], row["source"]) for row in rows])
        greedy = [answer(run, line) for line in lines[:INPUTS]]
        beams = run.translate(lines[:INPUTS]) if task == "translation" else []
        graphs = page_graphs.graphs
        if system != "ngram":
            kept = list(graphs(run.model))  # they do not depend on the format
            page_graphs.graphs = lambda model: iter(kept)
        try:
            for weights in FORMATS:
                page = Path(scratch) / f"{weights}.html"
                export(run.folder, "page", page, options={"weights": weights, "scores": "no"})
                logs, answers = compute(page, rows, asked, Path(scratch) / "logs")
                theirs, written = logs.reshape(ours.shape), [text_of(task, one) for one in answers]
                pairs = [
                    [(line, a, b) for line, a, b in zip(lines, expected, part) if a != b]
                    for expected, part in ((greedy, written[:INPUTS]), (beams, written[INPUTS:]))
                ]
                ends = np.cumsum([0, *(len(row["ids"]) for row in rows)])
                change = (
                    [
                        (ours - theirs)[np.arange(start, end - 1), row["ids"][1:]]
                        for row, (start, end) in zip(rows, pairwise(ends))
                    ]
                    if task != "classification"
                    else []
                )
                found.append(
                    {
                        "system": system,
                        "tokenizer": run.tokenizer.kind if task != "classification" else run.source_tokenizer.kind,
                        "weights": weights,
                        "tokens": len(ours),
                        "largest": float(np.abs(ours - theirs)[ours > -1e4].max()),
                        "loss": float(np.concatenate(change).mean()) if change else None,
                        "greedy": len(pairs[0]),
                        "beam": len(pairs[1]) if beams else None,
                        "lead": max((lead(run, task, line, b) for line, _, b in pairs[0]), default=None),
                        "beam lead": max((beam_lead(run, *one) for one in pairs[1]), default=None),
                        "bytes": page.stat().st_size,
                    }
                )
        finally:
            page_graphs.graphs = graphs
    return found


def holds(row: dict[str, Any]) -> bool:
    error = row["largest"] if row["weights"] != "int8" or row["loss"] is None else abs(row["loss"])
    return bool(error <= BOUNDS[row["weights"]])


def table(lines: list[str]) -> str:
    """One row for each system. Under each tokenizer: the largest |Δ log P| in fp32, fp16 and int8."""
    kept: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        one = json.loads(line)
        kept[one["system"]][one["tokenizer"]].append(one)
    out = [
        f"| system | {' | '.join(TOKENIZERS)} | int8: Δ loss | greedy | lead | beam | lead |",
        f"|{'---|' * (len(TOKENIZERS) + 6)}",
    ]
    for system, tokenizers in kept.items():
        every = [one for found in tokenizers.values() for one in found]
        losses = [abs(one["loss"]) for one in every if one["weights"] == "int8" and one["loss"] is not None]
        cells = [system, *(", ".join(short(one["largest"]) for one in tokenizers[cut]) or "–" for cut in TOKENIZERS)]
        cells.append(short(max(losses)) if losses else "–")
        for name, lead_name in (("greedy", "lead"), ("beam", "beam lead")):
            counts = [
                [one[name] for one in every if one["weights"] == form and one[name] is not None] for form in FORMATS
            ]
            leads = [one[lead_name] for one in every if one[lead_name] is not None]
            cells.append(", ".join(str(sum(count)) for count in counts) if any(counts) else "–")
            cells.append(short(max(leads)) if leads else "–")
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def short(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-") if value < 1e-3 else f"{value:.1g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="*", default=[*TASKS, OWN], metavar="SYSTEM")
    parser.add_argument("--tokenizers", nargs="+", default=TOKENIZERS, choices=TOKENIZERS)
    parser.add_argument("--chromium", action="store_true", help="compute in the page itself")
    parser.add_argument("--table", type=Path, help="a file of lines that were printed before")
    given = parser.parse_args()
    if given.table:
        print(table(given.table.read_text().splitlines()))
        sys.exit()
    failed = 0
    for cut in given.tokenizers:
        for name in given.systems:
            for row in compare(name, cut, in_chromium if given.chromium else in_node):
                failed += not holds(row)
                print(json.dumps(row), flush=True)
    sys.exit(f"{failed} rows are beyond their bound" if failed else 0)
