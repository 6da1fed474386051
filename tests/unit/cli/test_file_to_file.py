"""A file that was begun is finished only by the same question: the same run, the same input and the same options.

Else one output would hold two kinds of answers, with nothing to show where one ends. Each option of `translate` and
`generate` is changed here, and one that is new must be added.
"""

import inspect
import shutil
from pathlib import Path

import pytest

import regard
from regard.base.errors import RegardError
from regard.cli import file_to_file
from regard.cli.generate import generate
from regard.cli.translate import translate
from regard.training.checkpoint import load_tensors, save_tensors

TRANSLATE = {  # option: what was asked first, and what then
    "beam": ({}, {"beam": 2}),
    "length_penalty": ({}, {"length_penalty": 0.3}),
    "min_tokens": ({}, {"min_tokens": 2}),
    "max_tokens": ({}, {"max_tokens": 5}),
    "temperature": ({"temperature": 1.0}, {"temperature": 0.5}),
    "top_k": ({"temperature": 1.0}, {"temperature": 1.0, "top_k": 3}),
    "top_p": ({"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.5}),
    "seed": ({"temperature": 1.0}, {"temperature": 1.0, "seed": 1}),
    "alignment": ({}, {"alignment": True}),
    "json": ({}, {"json": True}),
    "n_best": ({"json": True}, {"json": True, "n_best": 2}),
    "attention": ({"json": True}, {"json": True, "attention": True}),
    "truncate": ({}, {"truncate": True}),
    "average": ({}, {"average": 2}),
    "weights": ({}, {"weights": "last"}),
    "engine": ({}, {"engine": "ctranslate2"}),
}
GENERATE = {
    "max_tokens": ({}, {"max_tokens": 5}),
    "temperature": ({}, {"temperature": 0.5}),
    "top_k": ({}, {"top_k": 3}),
    "top_p": ({}, {"top_p": 0.5}),
    "min_p": ({}, {"min_p": 0.5}),
    "repetition_penalty": ({}, {"repetition_penalty": 1.5}),
    "presence_penalty": ({"frequency_penalty": 1.0}, {"frequency_penalty": 1.0, "presence_penalty": 0.5}),
    "logit_bias": ({}, {"logit_bias": ["3=2"]}),
    "frequency_penalty": ({}, {"frequency_penalty": 1.0}),
    "choice": ({}, {"choice": ["a", "b"]}),
    "regex": ({}, {"regex": "[a-z]+"}),
    "json_schema": ({}, {"json_schema": Path(__file__).parent / "any_schema.json"}),
    "seed": ({}, {"seed": 1}),
    "precision": ({}, {"precision": "bf16"}),
    "weights": ({}, {"weights": "last"}),
    "json": ({}, {"json": True}),
}
ASKED = [(verb, name) for verb, options in ((translate, TRANSLATE), (generate, GENERATE)) for name in options]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By verb: a run that has seen three validations."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "pairs.tsv").write_text("".join(f"the ship {n}\tdas Schiff {n}\n" for n in range(60)))
    (folder / "text.txt").write_text("".join(f"the ship {n} left\n" for n in range(60)))
    training = {"steps": 3, "evaluate_every": 1, "checkpoint_every": 1, "threads": 1, "device": "cpu"}
    settings = {"training": training, "data": {"tokenizer": "char"}, "model": {"width": 8, "heads": 1, "layers": 1}}
    made = {}
    for verb, system, data in ((translate, "transformer", "pairs.tsv"), (generate, "gpt", "text.txt")):
        made[verb] = folder / system
        regard.train(system, data=folder / data, size="tiny", run=made[verb], settings=settings)
    return made


class Interrupted(Exception):
    pass


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """ask(verb, run, **options): as the command does it, until the first line would be written."""

    def stop(*_):
        raise Interrupted

    monkeypatch.setattr(file_to_file, "_go_on", stop)
    (tmp_path / "in.txt").write_text("the ship\n")

    def call(verb, run, **options):
        with pytest.raises(Interrupted):
            verb(run, source=tmp_path / "in.txt", out=tmp_path / "out.txt", device="cpu", **options)

    return call


@pytest.mark.parametrize(
    ("verb", "option"), ASKED, ids=lambda value: value if isinstance(value, str) else value.__name__
)
def test_a_file_that_was_begun_with_other_options_is_not_finished(runs, ask, verb, option):
    first, other = (TRANSLATE if verb is translate else GENERATE)[option]
    ask(verb, runs[verb], **first)
    ask(verb, runs[verb], **first)  # the same question goes on
    with pytest.raises(RegardError, match="belongs to a job with a different run, input or options"):
        ask(verb, runs[verb], **other)


@pytest.mark.parametrize("verb", [translate, generate])
def test_every_option_is_among_them(verb):
    """Where it computes changes nothing that is asked; the others say what is read and written."""
    named = set(inspect.signature(verb).parameters) - {"run", "source", "out", "device"}
    only_prompts = {"prompt", "lines", "beam"} if verb is generate else set()  # do not go with --in
    assert named - only_prompts == set(TRANSLATE if verb is translate else GENERATE)


@pytest.mark.parametrize("verb", [translate, generate])
def test_another_input_or_run_does_not_finish_it(runs, ask, tmp_path, verb):
    run = tmp_path / "run"
    shutil.copytree(runs[verb], run)
    ask(verb, run)
    ask(verb, runs[verb])  # a copy is the same run
    (tmp_path / "in.txt").write_text("the ship!\n")
    with pytest.raises(RegardError, match="belongs to a job with a different"):
        ask(verb, run)
    (tmp_path / "in.txt").write_text("the ship\n")
    weights, _ = load_tensors(run / "model.safetensors")
    save_tensors(run / "model.safetensors", {name: 2 * weight for name, weight in weights.items()})
    with pytest.raises(RegardError, match="belongs to a job with a different"):
        ask(verb, run)
