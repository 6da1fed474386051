"""The exercises by name, and the sheets with their blanks. Nothing here imports torch."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path

from regard.base.errors import RegardError
from regard.base.locks import write_new
from regard.base.reading import read_whole
from regard.base.settings import did_you_mean
from regard.learn.exercises.hints import HINTS

SHEETS = Path(__file__).parent / "sheets"
MAX_ANSWER_BYTES = 1 << 20  # of a file with an answer


@dataclass(frozen=True)
class Exercise:
    name: str
    title: str
    lecture: str  # the line of the notes: 003:49 is file 003, line 49
    level: int  # 1 = one line, 2 = a few lines, 3 = think first
    function: str  # the graded function of the sheet
    topic: str  # the module `TOPIC_exercises` has its grader

    @property
    def sheet(self) -> str:
        """The file with the blank."""
        return (SHEETS / f"{self.name}.py").read_text(encoding="utf-8")

    @property
    def hints(self) -> tuple[str, str, str]:
        """Three hints: where to look, which operation to use, and almost the line itself."""
        return HINTS[self.name]


EXERCISES = (
    Exercise("rnn-step", "one step of the recurrent network", "003:49", 1, "rnn_step", "recurrent"),
    Exercise("lstm-gates", "the LSTM's cell and its gates", "003:184", 2, "lstm_step", "recurrent"),
    Exercise("gru-gates", "the GRU's two gates", "003:178", 2, "gru_step", "recurrent"),
    Exercise("teacher-forcing", "the decoder reads the right word, not its own", "004:42", 2, "losses", "training"),
    Exercise("gradient-clipping", "scale big gradients", "003:147", 2, "clip", "training"),
    Exercise("causal-mask", "hide the words that come later", "000:89", 1, "causal_mask", "attention"),
    Exercise("scaled-dot-product", "softmax(QKᵀ/√d) V", "004:184", 2, "attention", "attention"),
    Exercise("multi-head", "several heads side by side", "003:300", 3, "multi_head", "attention"),
    Exercise("additive-score", "Bahdanau's score and context", "004:209", 2, "attend", "attention"),
    Exercise("kernel-regression", "Nadaraya and Watson: attention by distance", "004:165", 2, "regress", "attention"),
    Exercise("cached-attention", "one word at a time, with the same answer", "000:55", 2, "step", "attention"),
    Exercise("sinusoid-positions", "sin(ωt): the position of a word", "001:197", 2, "sinusoid", "block"),
    Exercise("layer-norm", "layer normalization", "004:181", 1, "layer_norm", "block"),
    Exercise("residual-block", "the Transformer's block", "001:180", 2, "block", "block"),
    Exercise("word-average", "the DAN: an average of all words so far", "002:41", 1, "averages", "block"),
    Exercise("ngram-counts", "count and normalize", "002:5", 2, "bigrams", "counting"),
    Exercise("continuation-counts", "Kneser and Ney's counts", "002:5", 2, "continuations", "counting"),
    Exercise("kneser-ney", "Kneser and Ney's discount", "002:5", 3, "smooth", "counting"),
    Exercise("corpus-perplexity", "perplexity, over all tokens", "000:16", 1, "perplexity", "counting"),
    Exercise("bleu-score", "BLEU: clipped precision and the brevity penalty", "004:86", 3, "bleu", "counting"),
    Exercise("greedy-decoding", "from <bos> until <eos>", "004:60", 2, "greedy", "decoding"),
    Exercise("beam-search", "keep the best few beginnings", "004:61", 3, "extend", "decoding"),
    Exercise("temperature-top-k", "sampling with temperature and top-k", "004:61", 2, "chances", "decoding"),
    Exercise("nucleus-sampling", "sampling with top-p", "004:61", 3, "nucleus", "decoding"),
    Exercise("label-smoothing", "a loss whose target is never certain", "000:16", 2, "smoothed_loss", "training"),
    Exercise("warm-up-schedule", "the Transformer's learning rate", "004:23", 1, "learning_rate", "training"),
)
BY_NAME = {exercise.name: exercise for exercise in EXERCISES}


def find_exercise(name: str) -> Exercise:
    if name not in BY_NAME:
        raise RegardError(f"There is no exercise {name!r}{did_you_mean(name, list(BY_NAME))}")
    return BY_NAME[name]


def write_sheet(exercise: Exercise, path: Path) -> None:
    """Write the sheet as a new file, or as a notebook if it ends in .ipynb; an existing file is not changed."""
    write_new(path, sheet_notebook(exercise) if path.suffix == ".ipynb" else exercise.sheet)


def sheet_notebook(exercise: Exercise) -> str:
    """The sheet as a notebook: its text, and a cell with the function that `%%check` grades."""
    tree = ast.parse(exercise.sheet)
    (function,) = (node for node in tree.body if getattr(node, "name", "") == exercise.function)
    title, _, text = (ast.get_docstring(tree) or "").partition("\n")
    text = text.strip().rpartition("\n\n")[0]  # without the line about files
    cells = [
        ("markdown", f"# {title}\n\n```text\n{text}\n```"),
        ("code", "%load_ext regard.learn"),
        ("code", f"%%check {exercise.name}\n{ast.get_source_segment(exercise.sheet, function)}"),
    ]
    book = {
        "cells": [
            {"cell_type": kind, "id": f"{exercise.name}-{place}", "metadata": {}, "source": source.splitlines(True)}
            | ({"execution_count": None, "outputs": []} if kind == "code" else {})
            for place, (kind, source) in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def exercise_of(path: Path) -> Exercise:
    """The exercise that a file answers, read from its line `EXERCISE = …` without running it."""
    content = read_whole(path, MAX_ANSWER_BYTES, foreign=True)
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f" on line {line}" if line else ""
        raise RegardError(f"{path} is not valid Python: {getattr(error, 'msg', error)}{place}; fix it.") from None
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="EXERCISE")], value=ast.Constant(value=str(name))):
                return find_exercise(name)
    raise RegardError(
        f'{path} does not name its exercise: restore its line EXERCISE = "…", with a name that `regard exercise` lists.'
    )
