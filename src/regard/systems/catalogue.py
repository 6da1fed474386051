"""All systems, oldest first, with a description, the authors, and the place of the code.

Nothing here imports torch, so listing systems is instant. A new system is one entry and one file; a user's own,
`./mine.py:MyCell`, needs neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from regard.base.errors import RegardError
from regard.base.settings import did_you_mean
from regard.systems.own.code import in_use, is_own

# For type checkers, by task: what `regard.train` returns follows from the name. A test compares them with SYSTEMS.
LanguageSystem = Literal[
    "ngram", "rnn", "lstm", "nnlm", "gru", "dan", "self-attention", "gpt", "linear-attention", "llama", "mingru"
]
TranslationSystem = Literal["seq2seq", "bahdanau", "transformer"]
ClassificationSystem = Literal["classifier"]
LAST_LECTURE = 2018  # the lectures' ladder ends with GPT


@dataclass(frozen=True)
class System:
    name: str
    year: int | None  # None: a user's own
    title: str  # a description in a few words
    paper: str
    target: str  # module:Class
    task: str = "language model"
    trained: str = "gradient"  # or "counting"

    @property
    def label(self) -> str:
        """Its name in tables and folders: for a user's own system, the class name."""
        return self.name.rpartition(":")[2]

    @property
    def after_gpt(self) -> bool:
        """True if it is more recent than the lectures."""
        return self.year is not None and self.year > LAST_LECTURE


SYSTEMS: tuple[System, ...] = (
    System(
        name="ngram",
        year=1948,
        title="counts of the last n − 1 words and the next",
        paper="Shannon 1948; smoothing: Kneser & Ney 1995, Chen & Goodman 1999",
        target="regard.systems.ngram:NGram",
        trained="counting",
    ),
    System(
        name="rnn",
        year=1990,
        title="a recurrent network: one hidden state, rewritten at every word",
        paper="Elman 1990; language model: Mikolov et al. 2010; identity initialization: Le et al. 2015",
        target="regard.systems.rnn:RNN",
    ),
    System(
        name="lstm",
        year=1997,
        title="a recurrent network whose gates guard a memory cell",
        paper="Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000; language model: Merity et al. 2018",
        target="regard.systems.lstm:LSTMModel",
    ),
    System(
        name="nnlm",
        year=2003,
        title="a feed-forward network over the vectors of the last n − 1 words",
        paper="Bengio et al. 2003",
        target="regard.systems.nnlm:NNLM",
    ),
    System(
        name="gru",
        year=2014,
        title="a recurrent network with two gates",
        paper="Cho et al. 2014",
        target="regard.systems.gru:GRUModel",
    ),
    System(
        name="seq2seq",
        year=2014,
        title="one recurrent network reads; another writes, starting from its last state",
        paper="Sutskever et al. 2014; Cho et al. 2014",
        target="regard.systems.seq2seq:Seq2Seq",
        task="translation",
    ),
    System(
        name="dan",
        year=2015,
        title="a feed-forward network over the average of all words so far",
        paper="Iyyer et al. 2015",
        target="regard.systems.dan:DAN",
    ),
    System(
        name="bahdanau",
        year=2015,
        title="a recurrent network that attends to the source before every word it writes",
        paper="Bahdanau et al. 2015; without feeding: Luong et al. 2015",
        target="regard.systems.bahdanau:Bahdanau",
        task="translation",
    ),
    System(
        name="classifier",
        year=2015,
        title="an encoder of any kind, and one label for the whole text",
        paper="Iyyer et al. 2015 (dan); Dai & Le 2015 (lstm); Vaswani et al. 2017 (attention)",
        target="regard.systems.classifier:Classifier",
        task="classification",
    ),
    System(
        name="self-attention",
        year=2017,
        title="a single layer of attention to all earlier words",
        paper="Vaswani et al. 2017, only its attention",
        target="regard.systems.self_attention:SelfAttentionModel",
    ),
    System(
        name="transformer",
        year=2017,
        title="an encoder and a decoder made of attention",
        paper="Vaswani et al. 2017; pre-norm: Wang et al. 2019",
        target="regard.systems.transformer:Transformer",
        task="translation",
    ),
    System(
        name="gpt",
        year=2018,
        title="a decoder-only Transformer",
        paper="Radford et al. 2018, 2019; Transformer: Vaswani et al. 2017",
        target="regard.systems.gpt:GPT",
    ),
    System(
        name="linear-attention",
        year=2020,
        title="GPT's block with a kernel that factorizes: a recurrent network whose state is a matrix",
        paper="Katharopoulos et al. 2020; decay: Sun et al. 2023, Yang et al. 2024; delta rule: Schlag et al. 2021",
        target="regard.systems.linear_attention:LinearTransformer",
    ),
    System(
        name="llama",
        year=2023,
        title="GPT's block with rotary positions, RMSNorm, a gated feed-forward and grouped queries",
        paper="Touvron et al. 2023; grouped queries: Ainslie et al. 2023; SwiGLU: Shazeer 2020; rotary: Su et al. 2021",
        target="regard.systems.llama:Llama",
    ),
    System(
        name="mingru",
        year=2024,
        title="a recurrent network whose gates do not depend on the past, so training runs in parallel",
        paper="Feng et al. 2024; the scan: Blelloch 1990",
        target="regard.systems.mingru:MinGRUModel",
    ),
)


def find(name: str) -> System:
    """The entry of a system by name; a user's own file is run, if it was named (`code.trust_code`)."""
    for system in SYSTEMS:
        if system.name == name:
            return system
    if not is_own(name):
        if Path(name).is_file():
            raise RegardError(
                f"{name!r} is a file, not a system: `regard train lstm --data {name}` trains an LSTM on it."
            )
        raise RegardError(f"There is no system {name!r}{did_you_mean(name, [system.name for system in SYSTEMS])}")
    from regard.systems.own.stack import open_own

    code = in_use(name)
    title, *_ = (open_own(code).kind.__doc__ or "").strip().splitlines() or [""]
    return System(name=code.name, year=None, title=title.strip() or "custom system", paper="", target=code.name)


def load_class(name: str) -> Any:
    """The class of a system; its file, and with it torch, is imported only now."""
    if is_own(name):
        return load_module(name).kind
    return getattr(load_module(name), find(name).target.partition(":")[2])


def load_module(name: str) -> Any:
    """The module of a system with its Settings; of a user's own file, its `OwnLayer` or `OwnModel`."""
    if is_own(name):
        from regard.systems.own.stack import open_own

        return open_own(in_use(name))
    return import_module(find(name).target.partition(":")[0])
