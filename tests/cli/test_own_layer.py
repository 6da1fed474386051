"""One's own layer, no fork: what the tutorial shows works, mistakes are found by the law that names them, and a run
never runs code that its user has not named."""

import hashlib
import json
import re
import shlex
import textwrap
from pathlib import Path

import pytest
import torch

import regard as package
from regard.base.digests import with_digest
from regard.base.errors import RegardError
from regard.layers.cell import Cell
from regard.layers.layer import Layer
from regard.layers.state import Span
from regard.runs.recipe import compose
from regard.runs.store.facts import read_facts
from regard.systems.catalogue import find, load_class
from regard.systems.own.code import trust_code
from regard.systems.sizes import SIZES

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "your-own-layer.md"
TINY = ["--size", "tiny", "--data.tokenizer", "char", "--training.batch-tokens", "256", "--training.threads", "1"]
SHORT = [*TINY, "--model.width", "16", "--training.steps", "4", "--training.evaluate-every", "2"]


def blocks(kind):
    found = re.findall(rf"^( *)```{kind}\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.S | re.M)
    return [textwrap.dedent(code) for _, code in found]


def own(name):
    return trust_code(name).name


@pytest.fixture
def here(tmp_path, monkeypatch, text_file):
    """A stranger's folder: my.txt and the unit of the tutorial as mine.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "my.txt").write_bytes(text_file.read_bytes())
    (tmp_path / "mine.py").write_text(blocks("python")[0], encoding="utf-8")
    return tmp_path


@pytest.fixture
def write(here):
    """Write a file of one's own: write(code) → its path; Cell, Layer, Tensor, nn and torch are imported."""

    def to(code, name="own.py"):
        head = (
            "import torch\nfrom torch import Tensor, nn\nfrom regard.layers.cell import Cell\n"
            "from regard.layers.layer import Layer\nfrom regard.systems.model import Model, Stack\n"
        )
        (here / name).write_text(head + code, encoding="utf-8")
        return here / name

    return to


# -- the walk-through ------------------------------------------------------------------------------------------------


def test_the_walk_through_of_the_tutorial_works(here, regard):
    lines = [line for block in blocks("console") for line in block.splitlines() if line.startswith("$ regard ")]
    commands = [shlex.split(line)[1:] for line in lines]
    assert [words[1] for words in commands] == ["laws", "train", "compare"]
    for _, verb, *words in commands:
        words = ["500" if word == "200k" else word for word in words]  # tokens: it need not take a minute
        quick = {"train": SHORT[2:], "compare": SHORT[2:-4]}.get(verb, [])
        code, out, err = regard(verb, *words, *quick)
        assert code == 0, err
        assert "Traceback" not in err
        if verb == "laws":
            assert out.count("✓") == 14
        if verb == "train":
            assert out.strip() == "runs/mgu"
        if verb == "compare":
            assert (here / "runs" / "versus" / "report.html").exists()
    shown = {}
    exec(blocks("python")[2], shown)  # what it says to type
    assert shown["parts"]["layers"]["0"]["gate"].shape == (*shown["tokens"].shape, 16)


def test_the_parts_that_a_cell_returns_are_what_inspect_shows(here, regard):
    regard("train", "./mine.py:MinimalGatedUnit", "--data", "my.txt", "--run", "mine", *SHORT)
    code, out, err = regard("inspect", "mine", "The cat", "--gradients", "--json")
    assert code == 0, err
    trace = json.loads(out)
    gates = torch.tensor(trace["gates"]["layer/0/gate"])
    assert gates.shape == (len("The cat") + 1, 16)
    assert ((gates > 0) & (gates < 1)).all()
    assert trace["gradients"]
    assert "Layer 1: gate" in regard("inspect", "mine", "The cat")[1]


def test_the_lstm_of_the_tutorial_is_torchs(write):
    write(blocks("python")[3])
    torch.manual_seed(0)
    mine, theirs = load_class(own("./own.py:MyLSTM")).layer(5, 7), torch.nn.LSTM(5, 7, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(mine.input.weight)
        theirs.weight_hh_l0.copy_(mine.hidden.weight)
        theirs.bias_ih_l0.copy_(mine.input.bias)
        theirs.bias_hh_l0.copy_(torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(7))
        x = torch.randn(3, 4, 5)
        start = mine.begin(3, device="cpu", dtype=x.dtype)
        y, state = mine(x, start, Span(torch.zeros(3, dtype=torch.int64)))
        expected, (hidden, cell) = theirs(x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close((state["hidden"], state["cell"]), (hidden[0], cell[0]))


@pytest.mark.parametrize("size", SIZES)
def test_a_cell_is_trained_as_the_lstm_of_its_size(here, size):
    mine, lstm = compose(own("./mine.py:MinimalGatedUnit"), size), compose("lstm", size)
    assert mine.training == lstm.training
    assert vars(mine.model).items() <= vars(lstm.model).items()


def test_the_unit_is_the_equation_of_its_paper(here):
    torch.manual_seed(0)
    (layer,) = load_class(own("./mine.py:MinimalGatedUnit"))(
        9, compose(own("./mine.py:MinimalGatedUnit"), "tiny").model
    ).layers
    x, h = torch.randn(3, 128), torch.randn(3, 128)
    weight = dict(layer.named_parameters())
    f = torch.sigmoid(
        x @ weight["gate_input.weight"].T + h @ weight["gate_hidden.weight"].T + weight["gate_input.bias"]
    )
    candidate = torch.tanh(x @ weight["input.weight"].T + (f * h) @ weight["hidden.weight"].T + weight["input.bias"])
    torch.testing.assert_close(layer.step(x, {"hidden": h})["hidden"], (1 - f) * h + f * candidate)


def test_what_contributing_shows_of_a_broken_law_is_what_is_printed(write, regard):
    write(blocks("python")[1], "forgetful.py")
    _, out, _ = regard("laws", "./forgetful.py:Forgetful")
    shown = re.findall(r"```\n(✗.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.S)
    assert shown
    assert shown[0] in out


# -- mistakes, and the law that finds each ---------------------------------------------------------------------------

LINEAR = """
    def __init__(self, inputs, width):
        super().__init__(inputs, width)
        self.input, self.hidden = nn.Linear(inputs, width), nn.Linear(width, width)
"""
STEP = """
    def step(self, x, state):
        return {"hidden": (self.input(x) + self.hidden(state["hidden"])).tanh()}
"""
MISTAKES = {
    "looks at the future": (
        STEP
        + """
    def forward(self, x, state, span):
        return super().forward(x + x.flip(1), state, span)
    def explain(self, x, state, span):
        return super().explain(x + x.flip(1), state, span)
""",
        {2},
        "changing the tokens from position",
    ),
    "keeps its state on the module": (
        """
    def step(self, x, state):
        before = getattr(self, "kept", state["hidden"])
        before = before if len(before) == len(x) else state["hidden"]
        self.kept = (self.input(x) + self.hidden(before)).tanh()
        return {"hidden": self.kept}
""",
        {1, 3},
        "a module must not store anything between calls",
    ),
    "forgets what it was given": (
        """
    def forward(self, x, state, span):
        return super().forward(x, {"hidden": torch.zeros_like(state["hidden"])}, span)
    def explain(self, x, state, span):
        return super().explain(x, {"hidden": torch.zeros_like(state["hidden"])}, span)
"""
        + STEP,
        {1},
        "into 2 calls changes the logits by",
    ),
    "forgets padding": (
        """
    def forward(self, x, state, span):
        hidden, steps = state["hidden"], []
        for t in range(x.size(1)):
            hidden = self.step(x[:, t], {"hidden": hidden})["hidden"]
            steps.append(hidden)
        return torch.stack(steps, 1), {"hidden": hidden}
"""
        + STEP,
        {3, 11},
        "padding changes the logits",
    ),
    "takes the last column as the state": (
        """
    def forward(self, x, state, span):
        hidden, _ = super().forward(x, state, span)
        return hidden * 1, {"hidden": self.input(x[:, -1]).tanh()}
"""
        + STEP,
        {1, 3, 11},
        "padded column must leave its row's state",
    ),
    "alters the state it was given": (
        """
    def step(self, x, state):
        state["hidden"].mul_(0.5).add_(self.input(x).tanh())
        return {"hidden": state["hidden"].clone()}
""",
        {8},
        "a call alters the state it was given (past.0.hidden) by",
    ),
    "assigns into the dict it was given": (
        """
    def step(self, x, state):
        state["hidden"] = (self.input(x) + self.hidden(state["hidden"])).tanh()
        return state
""",
        {8},
        "a call alters the state it was given (hidden): make a new dict",
    ),
    "puts into the layer's dict": (
        STEP
        + """
    def forward(self, x, state, span):
        hidden, new = super().forward(x, state, span)
        state["hidden"] = new["hidden"]
        return hidden, new
""",
        {8},
        "a call alters the state it was given (past.0.hidden, past.1.hidden): make a new dict",
    ),
    "sums over the batch": (
        """
    def step(self, x, state):
        return {"hidden": (self.input(x) + self.hidden(state["hidden"]).sum(0, keepdim=True)).tanh()}
""",
        {3},
        "rows must not be mixed",
    ),
    "explains something else": (
        STEP
        + """
    def explain(self, x, state, span):
        hidden, state, parts = super().explain(x, state, span)
        return hidden * 1.001, state, parts
""",
        {5},
        "`explain` and `forward` do not compute the same values",
    ),
    "explains nothing": (
        STEP
        + """
    def explain(self, x, state, span):
        raise NotImplementedError("later")
""",
        {5},
        'NotImplementedError: later on line 15 of own.py (raise NotImplementedError("later"))',
    ),
    "has weights that are not saved": (
        STEP.replace("self.input(x)", "self.input(x) * self.scale")
        + """
    @property
    def scale(self):
        self.__dict__.setdefault("_scale", float(torch.rand(())))
        return self._scale
""",
        {6},
        "saving and loading changes the logits",
    ),
    "cuts the gradient": (
        """
    def step(self, x, state):
        return {"hidden": (self.input(x) + self.hidden(state["hidden"].detach())).tanh()}
""",
        {14},
        "no gradient reaches back",
    ),
    "learns nothing": (
        """
    def step(self, x, state):
        return {"hidden": 0.0 * (self.input(x) + self.hidden(state["hidden"]))}
""",
        {13},
        "it does not learn its training text",
    ),
    "begins with a shout": (
        """
    def step(self, x, state):
        return {"hidden": 30 * (self.input(x) + self.hidden(state["hidden"])).tanh()}
""",
        {13},
        "its initial outputs are too large",
    ),
    "divides by nothing": (
        STEP
        + """
    def forward(self, x, state, span):
        hidden, new = super().forward(x, state, span)
        if span.lengths is not None:
            hidden = hidden / span.valid(x.size(1))[..., None]
        return hidden, new
""",
        {3},
        "a padded column gives logits that are not finite",
    ),
    "carries a number": (
        STEP
        + """
    def begin(self, rows, **options):
        return {**super().begin(rows, **options), "steps": 0}
    def forward(self, x, state, span):
        hidden, new = super().forward(x, {"hidden": state["hidden"]}, span)
        return hidden, {**new, "steps": state["steps"] + x.size(1)}
    def explain(self, x, state, span):
        hidden, new, parts = super().explain(x, {"hidden": state["hidden"]}, span)
        return hidden, {**new, "steps": state["steps"] + x.size(1)}, parts
""",
        {1},
        "the state's past.0.steps is a int: a state contains only tensors and dicts of them",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_by_the_law_that_names_it(write, regard, mistake):
    body, numbers, said = MISTAKES[mistake]
    write(f"class Mine(Cell):{LINEAR}{body}")
    code, out, err = regard("laws", "./own.py:Mine", "--json")
    results = json.loads(out)
    broken = {result["number"]: result["sentence"] for result in results if not result["holds"]}
    assert code == 1, err
    assert numbers <= broken.keys(), broken
    assert any(said in broken[number] for number in numbers), broken
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in broken.values())
    assert "Traceback" not in out + err


MODEL = """
from dataclasses import dataclass
from regard.layers.embedding import Embedding, Output
from regard.layers.recurrent import LSTM
@dataclass(frozen=True)
class Settings:
    width: int = 16
SIZES = {"tiny": {"width": 12}, "small": {"width": 16}}
TRAINING = {"batches": "stream"}
class Mine(Stack):
    "A whole model."
    def __init__(self, vocabulary, settings):
        width = settings.width
        output = Output(width, vocabulary, tied=False, bias=True)
        super().__init__(Embedding(vocabulary, width), [LSTM(width, width)], output)
        self.settings = settings
"""


def test_a_whole_model_is_taken_as_it_is(write, regard):
    write(MODEL)
    assert regard("laws", "./own.py:Mine")[0] == 0
    recipe = compose(own("./own.py:Mine"), "tiny", {"model": {"width": "20"}})
    assert (recipe.model.width, recipe.training.batches) == (20, "stream")
    code, _, err = regard("train", "./own.py:Mine", "--data", "my.txt", *[*SHORT[:-6], *SHORT[-4:]], "--run", "runs/m")
    assert code == 0, err
    assert regard("evaluate", "runs/m")[0] == 0
    assert regard("train", "./own.py:Mine", "--print-recipe")[0] == 0


def test_probabilities_that_do_not_sum_to_one_are_found(write, regard):
    write(
        MODEL
        + "    def loss(self, *given):\n        nll, state = super().loss(*given)\n        return 0.9 * nll, state\n"
    )
    code, out, _ = regard("laws", "./own.py:Mine")
    assert code == 1
    assert "✗  4" in out
    assert "the vocabulary's probabilities sum to" in out


GROWING = """
class Mine(Layer):
    def __init__(self, inputs, width):
        super().__init__()
        self.value = nn.Linear(inputs, width)
        self.width = width
    def begin(self, rows, *, capacity=None, device, dtype):
        return {"values": torch.zeros(rows, 0, self.width, device=device, dtype=dtype)}
    def forward(self, x, state, span):
        values = torch.cat([state["values"], self.value(x)], 1)
        count = torch.arange(1, values.size(1) + 1, dtype=x.dtype, device=x.device)[None, :, None]
        return (values.cumsum(1) / count)[:, -x.size(1):], {"values": values}
    def explain(self, x, state, span):
        return *self.forward(x, state, span), {}
"""


def test_a_state_that_grows_is_trained_on_windows_and_told_what_it_lacks(write, regard):
    write(GROWING)
    assert compose(own("./own.py:Mine"), "tiny").training.batches == "windows"
    code, out, _ = regard("laws", "./own.py:Mine")
    assert code == 1  # a cache that grows by cat is wrong for ragged rows, and knows no capacity
    assert "✓  1" in out
    assert "✗  3" in out
    assert "✗  9" in out
    assert "with a capacity, every tensor of the state must keep its shape" in out
    assert regard("train", "./own.py:Mine", "--data", "my.txt", *SHORT, "--run", "runs/g")[0] == 0


# -- what can be wrong before any law --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code, target, said",
    [
        ("", "./nowhere.py:Mine", "There is no file ./nowhere.py"),
        ("", "./own.py", "does not name a class: write ./own.py:MyCell"),
        ("class Mine(Cell): pass", "./own.py:Mien", "own.py has no class Mien: did you mean Mine?"),
        ("", "./own.py:Nothing", "own.py has no class Nothing, nor any other class"),
        ("class Mine(nn.Module): pass", "./own.py:Mine", "is neither a layer nor a model: subclass"),
        ("Mine = 3", "./own.py:Mine", "own.py has no class Mine"),
        (
            "import nonsense",
            "./own.py:Mine",
            "ModuleNotFoundError: No module named 'nonsense' on line 6 (import nonsense)",
        ),
        (
            "x = 1/0",
            "./own.py:Mine",
            "own.py cannot be imported: ZeroDivisionError: division by zero on line 6 (x = 1/0)",
        ),
        ("class Mine(Cell:", "./own.py:Mine", "own.py is not valid Python"),
        ("raise SystemExit(3)", "./own.py:Mine", "own.py cannot be imported: SystemExit: 3 on line 6"),
        (
            "class Mine(Layer):\n  def __init__(self, width: int): super().__init__()",
            "./own.py:Mine",
            "Mine must be constructed as Mine(inputs, width); its constructor takes (width)",
        ),
        (
            "class Mine(Layer):\n  def __init__(self, inputs, width, *, heads): super().__init__()",
            "./own.py:Mine",
            "its constructor takes (inputs, width, *, heads)",
        ),
        (
            "class Mine(Model):\n  def __init__(self): super().__init__()",
            "./own.py:Mine",
            "Mine must be constructed as Mine(vocabulary, settings); its constructor takes ()",
        ),
        (
            "class Mine(Cell):\n  memory = ('hidden', 'cell')\n  def step(self, x, state): return {'hidden': x}",
            "./own.py:Mine",
            "a step must return everything the cell carries: cell is missing",
        ),
        (
            "class Mine(Cell):\n  def step(self, x, state): return {'hidden': state['cell']}",
            "./own.py:Mine",
            'step requires \'cell\', which the cell does not carry: write memory = ("hidden", "cell").',
        ),
        (
            "class Mine(Cell):\n  memory = 'hidden'\n  def step(self, x, state): return {'hidden': x}",
            "./own.py:Mine",
            'memory = "hidden" is a string, not a tuple: write memory = ("hidden",).',
        ),
        (
            "class Mine(Cell):\n  memory = ('cell',)\n  def step(self, x, state): return {'cell': x}",
            "./own.py:Mine",
            'memory must contain "hidden", which is also the output: write memory = ("hidden", "cell").',
        ),
        (
            "class Mine(Cell):\n  def step(self, x, state): return x, state",
            "./own.py:Mine",
            'a step must return a dict of tensors such as {"hidden": …}, not a tuple.',
        ),
        (
            "class Mine(Cell):\n  def step(self, x, state): return {'hidden': 1.0}",
            "./own.py:Mine",
            "a step must return hidden as a tensor, not as a float.",
        ),
        (
            "class Mine(Cell):\n  def step(self, x, state): return {'hidden': x[:, :3]}",
            "./own.py:Mine",
            "a step must return hidden in the shape it was given, here [2, 8], not [2, 3].",
        ),
        (
            "class Mine(Model):\n  def __init__(self, vocabulary, settings): super().__init__()",
            "./own.py:Mine",
            "must also define Settings, a frozen dataclass",
        ),
        (
            "class Mine(Cell):\n  def forward(self, x, state, span): return x",
            "./own.py:Mine",
            "Mine.forward must return y and the new state, not a Tensor",
        ),
        (
            "class Mine(Cell):\n  def forward(self, x, state, span): return x[..., :3], state",
            "./own.py:Mine",
            "must return y of shape [rows, columns, width], here [2, 3, 8], not [2, 3, 3]",
        ),
        (
            "class Mine(Cell):\n  def forward(self, x, state, span): return x, (x, x)",
            "./own.py:Mine",
            "the state Mine.forward returns must be a dict of tensors, not a tuple",
        ),
        ("", "no.such.module:Mine", "There is no module no.such.module"),
        ("", "own:Nothing", "own.py has no class Nothing"),
        ("", "./own.txt:Mine", "is not a Python file"),
        ("", "lstn", "did you mean lstm?"),
    ],
)
def test_a_wrong_target_is_one_sentence(write, regard, code, target, said):
    write(code)
    for words in (["laws", target], ["train", target, "--data", "my.txt"]):
        status, out, err = regard(*words)
        assert status == 2
        assert said in err
        assert err.count("\n") == 1
        assert not out


def test_a_key_error_of_ones_own_stays_one(write, regard):
    write("class Mine(Cell):\n  def step(self, x, state): return {'hidden': {}['gate']}\n")
    assert "KeyError: 'gate' on line 7 of own.py" in regard("laws", "./own.py:Mine")[1]


def test_a_memory_that_never_changes_is_noted_and_breaks_no_law(write, regard):
    step = STEP.replace(".tanh()}", ".tanh(), 'cell': state['cell']}")
    write(f"class Mine(Cell):\n    memory = ('hidden', 'cell'){LINEAR}{step}")
    code, _, err = regard("laws", "./own.py:Mine")
    assert code == 0
    assert "note: the state's cell never changes, whatever the model reads" in err
    assert "never changes" not in regard("laws", "./mine.py:MinimalGatedUnit")[2]


def test_a_crash_names_the_exception_and_the_line(write, regard):
    file = write(f"class Mine(Cell):{LINEAR}\n    def step(self, x, state):\n        return x @ state['hidden']\n")
    line = file.read_text().splitlines().index("        return x @ state['hidden']") + 1
    where = f"on line {line} of own.py (return x @ state['hidden'])."
    code, out, err = regard("laws", "./own.py:Mine")
    assert code == 1
    assert "✗  1" in out
    assert "      RuntimeError: mat1 and mat2 shapes" in out
    assert where in out
    assert "Traceback" not in out + err
    code, _, err = regard("train", "./own.py:Mine", "--data", "my.txt")
    assert code == 2
    assert where in err
    assert "`regard laws " in err
    assert "Traceback" not in err


def test_a_crash_in_the_midst_of_training_is_one_sentence_too(write, regard):
    write(
        f"class Mine(Cell):{LINEAR}\n    def step(self, x, state):\n        assert len(x) < 3, 'too many'\n"
        "        return {'hidden': self.input(x)}\n"
    )
    code, _, err = regard("train", "./own.py:Mine", "--data", "my.txt", *SHORT, "--run", "runs/crash")
    assert code == 2
    assert err.splitlines()[-1] == (
        "regard: your own code crashed: AssertionError: too many on line 12 of own.py (assert len(x) < 3, 'too many')."
    )


# -- a run of it -----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(here, regard):
    assert regard("train", "./mine.py:MinimalGatedUnit", "--data", "my.txt", *SHORT, "--run", "runs/mine")[0] == 0
    return here / "runs" / "mine"


def test_a_run_of_it_is_a_run_like_any_other(run, here, regard, monkeypatch):
    assert compose(own("./mine.py:MinimalGatedUnit"), None).system == f"{here}/mine.py:MinimalGatedUnit"
    assert f'system = "{here}/mine.py:MinimalGatedUnit"' in (run / "recipe.toml").read_text()
    monkeypatch.chdir(here.parent)  # the name is absolute
    assert json.loads(regard("evaluate", run, "--json")[1])["perplexity"] > 1
    assert regard("generate", run, "--max-tokens", "5")[0] == 0
    assert regard("resume", run)[0] == 0
    assert regard("train", run / "recipe.toml", "--run", here / "again")[0] == 0
    weights = [package.load(folder).model.state_dict() for folder in (run, here / "again")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    monkeypatch.chdir(here)
    code, _, err = regard(
        "train",
        "./mine.py:MinimalGatedUnit",
        "--from",
        run,
        "--data",
        "my.txt",
        "--run",
        "runs/tuned",
        "--training.steps",
        3,
    )
    assert code == 0, err


def test_a_file_that_has_changed_or_gone_leaves_old_runs_as_they_were(run, here, regard):
    before = regard("evaluate", run, "--json")[1]
    mine = here / "mine.py"
    mine.write_text(mine.read_text().replace("(1 - gate) * before", "before"), encoding="utf-8")
    for _ in range(2):
        code, out, err = regard("evaluate", run, "--json")
        assert code == 0
        assert json.loads(out)["perplexity"] == json.loads(before)["perplexity"]
        assert f"note: {mine} is not the code that" in err
        mine.unlink(missing_ok=True)
    (run / "mine.py").unlink()
    code, _, err = regard("evaluate", run)
    assert code == 2
    assert "contains that code now: restore it, or train a new run." in err


def test_a_file_that_is_edited_is_read_again_in_the_same_process(here):
    first = load_class(own("./mine.py:MinimalGatedUnit"))
    assert load_class(own("./mine.py:MinimalGatedUnit")) is first
    mine = here / "mine.py"
    mine.write_text(mine.read_text().replace("Zhou", "Zhuo"), encoding="utf-8")
    assert load_class(own("./mine.py:MinimalGatedUnit")) is not first
    assert "Zhuo" in find(own("./mine.py:MinimalGatedUnit")).title


def test_opening_a_run_never_runs_code_that_was_not_named_here(run, here, regard, monkeypatch):
    """A stranger's folder: its recipe names a file, its run.json vouches for it, and neither is believed."""
    trap = here / "trap.py"
    trap.write_text(f"open({str(here / 'sprung')!r}, 'w')\n" + (here / "mine.py").read_text(), encoding="utf-8")
    for copied in (False, True):
        facts = read_facts(run)
        facts["code"] = {"file": "trap.py", "sha256": hashlib.sha256(trap.read_bytes()).hexdigest()}
        facts["recipe"]["system"] = facts["recipe"]["system"].replace("/mine.py:", "/trap.py:")
        (run / "run.json").write_text(json.dumps(with_digest(facts)))
        recipe = (run / "recipe.toml").read_text().replace("/mine.py:", "/trap.py:")
        (run / "recipe.toml").write_text(recipe)
        if copied:
            (run / "trap.py").write_bytes(trap.read_bytes())
            trap.unlink()
        file = run / "trap.py" if copied else trap
        for words in (["evaluate", run], ["resume", run], ["train", "--from", run, "--data", "my.txt"]):
            code, _, err = regard(*words)
            assert code == 2
            assert f"would run {file}" in err
            assert f"run `regard laws {file}:MinimalGatedUnit` and try again" in err
        with pytest.raises(RegardError, match="not been approved on this machine"):
            package.load(run)
        if not copied:
            code, _, err = regard("train", run / "recipe.toml")
            assert code == 2
            assert "recipe.toml would run" in err
        assert not (here / "sprung").exists()
    assert regard("laws", f"{run}/trap.py:MinimalGatedUnit")[0] == 0  # who has read it may say so
    assert (here / "sprung").exists()
    assert regard("evaluate", run)[0] == 0


def test_a_file_that_was_edited_after_it_was_named_is_not_run_unasked(run, here, regard):
    mine = here / "mine.py"
    mine.write_text(f"open({str(here / 'sprung')!r}, 'w')\n" + mine.read_text(), encoding="utf-8")
    code, _, err = regard("train", run / "recipe.toml", "--run", here / "again")
    assert code == 2
    assert f"recipe.toml would run {mine}" in err
    facts = read_facts(run)  # a run that says it was trained with what the file is now
    facts["code"]["sha256"] = hashlib.sha256(mine.read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps(with_digest(facts)))
    assert regard("evaluate", run)[0] == 2
    assert not (here / "sprung").exists()
    assert not (here / "again").exists()


def test_a_module_is_a_system_too(here, regard):
    (here / "lab").mkdir()
    (here / "lab" / "__init__.py").write_text("")
    (here / "lab" / "cells.py").write_text("from .parts import Mine\n", encoding="utf-8")
    (here / "lab" / "parts.py").write_text(
        "from regard.layers.recurrent import LSTM\nclass Mine(LSTM):\n    'A module\\'s own.'\n", encoding="utf-8"
    )
    assert find(own("lab.cells:Mine")).title == "A module's own."
    assert find(own("lab.cells:Mine")).label == "Mine"
    assert regard("train", "lab.cells:Mine", "--data", "my.txt", *SHORT, "--run", "runs/module")[0] == 0
    assert 'system = "lab.cells:Mine"' in (here / "runs" / "module" / "recipe.toml").read_text()
    assert regard("evaluate", "runs/module")[0] == 0


def test_naming_it_in_python_is_naming_it(here):
    made = package.train(
        "./mine.py:MinimalGatedUnit",
        data="my.txt",
        run="runs/python",
        size="tiny",
        settings={"training": {"steps": 2, "threads": 1}, "model": {"width": 16}},
    )
    assert made.parameters == package.load("runs/python").parameters
    assert issubclass(Cell, Layer)
    assert find(own("./mine.py:MinimalGatedUnit")).year is None
