"""The graphs compute what Regard computes, at any size; and the program on their page runs as it stands."""

import json
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from tokenizers import Tokenizer as Engine

import regard
from regard.base.errors import RegardError
from regard.exchange import onnx_graphs
from regard.exchange.formats import export
from regard.exchange.onnx_graphs import Graphs, leaves, nested
from regard.systems.catalogue import SYSTEMS

NEURAL = [system.name for system in SYSTEMS if system.trained == "gradient"]
# One layer of everything: exporting takes long, and its time grows with the layers. Of a system with several kinds of
# attention the one that is hardest to say in ONNX (it has no word for a distance): gpt has the plain one.
SMALLEST = {
    "transformer": {"layers": 1, "decoder_layers": 1},
    "classifier": {"encoder": "gru", "pool": "last", "layers": 1, "width": 8},
    "dan": {"layers": 1, "width": 8},
    "nnlm": {"order": 3, "width": 8, "embedding": 8},
    "self-attention": {"width": 8, "score": "epanechnikov", "position": "learned"},
    "seq2seq": {"layers": 1, "width": 8, "embedding": 8},
    "bahdanau": {"layers": 1, "width": 8, "embedding": 8},
    "linear-attention": {"layers": 1, "width": 8, "heads": 2, "rule": "delta", "decay": "gated"},
}
QUICK = ["dan"]  # the others are slow


def by_time(names):
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


def small(system):
    width = {} if system in ("gpt", "llama") else {"width": 8}
    return SMALLEST.get(system, {"layers": 1, **width})


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    """A run and the folder with its graphs, made once."""
    made = {}

    def get(system, **settings):
        key = repr((system, settings))
        if key not in made:
            run = runs(system, **small(system) | settings)
            out = tmp_path_factory.mktemp("onnx") / system
            export(run.folder, "onnx", out)
            made[key] = run, out
        return made[key]

    return get


@pytest.mark.parametrize("system", by_time(NEURAL))
def test_every_neural_system_is_the_same_in_onnxruntime(exported, system):
    run, out = exported(system)
    parity = onnx_graphs.check(run, out)
    assert parity.largest_difference < 1e-4
    assert int(re.fullmatch(r"(\d+) of \1 most probable tokens", parity.same_text)[1]) > 0


@pytest.mark.slow
def test_without_feeding_and_with_two_vocabularies_too(exported):
    run, out = exported("bahdanau", feed=False, cell="lstm", joint=False)
    assert onnx_graphs.check(run, out).largest_difference < 1e-4


@pytest.mark.parametrize("system", by_time(["dan", "lstm", "gpt", "seq2seq", "transformer", "classifier"]))
def test_the_program_on_its_page_writes_what_regard_writes(exported, system):
    run, out = exported(system)
    (program,) = re.findall(r"```python\n(.*?)```", (out / "README.md").read_text(), re.S)
    imports = {line.split()[1].partition(".")[0] for line in program.splitlines() if re.match("import|from", line)}
    assert imports == {"json", "numpy", "onnxruntime", "tokenizers"}
    done = subprocess.run([sys.executable, "-c", program], cwd=out, capture_output=True, text=True, check=True)
    assert done.stdout.removesuffix("\n") == ours(run)


@torch.no_grad()
def ours(run):
    """The most probable label, or tokens."""
    cut = run.source_tokenizer or run.tokenizer
    if run.recipe.system == "classifier":
        source = torch.tensor([[*cut.encode("A sentence to label."), 0]])
        label = int(run.model(source[:, :1], run.model.begin(source))[0].argmax())
        return Engine.from_str(run.tokenizer.json).id_to_token(label)
    tokens, written = [0], []
    if cut is not run.tokenizer or run.recipe.system in ("seq2seq", "transformer"):
        state = run.model.begin(torch.tensor([[*cut.encode("A sentence to translate."), 0]]))
    else:
        state, tokens = run.model.begin(), [0, *run.tokenizer.encode("The")]
    while len(written) < 30:
        logits, state = run.model(torch.tensor([tokens]), state)
        logits[0, -1, run.forbidden] = -torch.inf
        tokens = [int(logits[0, -1].argmax())]
        if tokens == [0]:
            break
        written += tokens
    return Engine.from_str(run.tokenizer.json).decode(written)


def test_a_row_that_reads_nothing_keeps_its_state(exported):
    """lengths = 0, in ONNX as here; and past = 0, the state before any token."""
    run, out = exported("dan")
    state = leaves(run.model.begin(rows=2))
    given = {"tokens": np.array([[3, 4], [5, 6]]), "lengths": np.array([2, 0]), **state}
    found = Graphs(out)("model", given)
    for path, leaf in state.items():
        assert np.array_equal(found[f"new.{path}"][1], leaf[1])
        assert not np.array_equal(found[f"new.{path}"][0], leaf[0])


def test_the_folder_says_what_goes_in_and_out_and_nothing_of_this_machine(exported):
    run, out = exported("dan")
    facts = json.loads((out / "model.json").read_text())
    model = facts["graphs"]["model"]
    assert model["inputs"]["tokens"] == {"type": "int64", "shape": ["rows", "columns"]}
    assert model["inputs"]["past.0.sum"] == {"type": "float32", "shape": ["rows", 8]}
    assert model["outputs"]["new.past.0.sum"] == {"type": "float32", "shape": ["rows", 8]}
    assert model["outputs"]["logits"]["shape"] == ["rows", "columns", run.model.vocabulary]
    onnx.checker.check_model(out / "model.onnx", full_check=True)
    for file in out.iterdir():
        assert b"/site-packages/" not in file.read_bytes()
        assert b"regard/layers" not in file.read_bytes()


def test_a_state_goes_to_paths_and_back():
    state = {"seen": 0, "past": {"0": {"hidden": 1, "cell": 2}}, "source": {"valid": 3}}
    assert list(leaves(state)) == ["seen", "past.0.hidden", "past.0.cell", "source.valid"]
    assert nested(leaves(state)) == state


def test_counts_are_refused_and_sent_to_their_own_format(tmp_path):
    lines = ["a b c", "c b a", "b b b", "a c b"] * 4
    run = regard.train("ngram", data=lines, run=tmp_path / "ngram", settings={"data": {"tokenizer": "char"}})
    with pytest.raises(RegardError, match="use --to arpa"):
        export(run.folder, "onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists()
