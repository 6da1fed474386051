"""Exercises on recurrence: the plain network's step, the LSTM's gates, the GRU's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.laws.registry import Build
from regard.layers.cell import Cell
from regard.layers.recurrent import elman, gru, lstm
from regard.layers.state import State
from regard.learn.exercises.grading import ExpectedOutput, Function, Grader, Mistake, RandomInputs
from regard.learn.exercises.small_models import WIDTH, model_of

LAWS = (1, 2, 3, 8, 11)


def weights(random: RandomInputs, gates: int) -> Iterator[tuple[Any, ...]]:
    """Vectors, a state, and the weights of `gates` gates, in different sizes."""
    for _ in range(4):
        rows, inputs, width = random.distinct(3, 2, 6)
        yield (
            random.normal(rows, inputs),
            random.normal(rows, width),
            random.normal(rows, width),
            random.normal(gates * width, inputs),
            random.normal(gates * width, width),
            random.normal(gates * width),
        )


class AskedCell(Cell):
    """A cell whose step is the function that is graded; `memory` names the state that it takes and returns after x."""

    def __init__(self, function: Function, gates: int, memory: tuple[str, ...]) -> None:
        super().__init__(WIDTH, WIDTH)
        self.function, self.memory = function, memory
        self.W, self.U = (nn.Parameter(torch.randn(gates * WIDTH, WIDTH)) for _ in range(2))
        self.b = nn.Parameter(torch.randn(gates * WIDTH))

    def step(self, x: Tensor, state: State) -> State:
        new = self.function(x, *(state[name] for name in self.memory), self.W, self.U, self.b)
        return dict(zip(self.memory, new if isinstance(new, tuple) else (new,)))


def cell_model(gates: int, *memory: str) -> Any:
    def model(function: Function) -> Build:
        return model_of(lambda: AskedCell(function, gates, memory))

    return model


HIDDEN = ExpectedOutput("the new state", ("row", "component"))

# -- the plain network -----------------------------------------------------------------------------------------------


def _rnn_cases(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for x, hidden, _, W, U, b in weights(random, 1):
        yield x, hidden, W, U, b


rnn_step = Grader(
    own="layers/recurrent.py: elman",
    cases=_rnn_cases,
    answer=lambda x, hidden, W, U, b: elman(F.linear(x, W, b), F.linear(hidden, U), {})["hidden"],
    outputs=(HIDDEN,),
    mistakes=(
        Mistake("the tanh is missing", lambda x, h, W, U, b: x @ W.T + h @ U.T + b),
        Mistake("the past is missing: U h_{t-1} is not added", lambda x, h, W, U, b: (x @ W.T + b).tanh()),
        Mistake("the word is missing: W x_t is not added", lambda x, h, W, U, b: (h @ U.T + b).tanh()),
        Mistake("U is transposed: hidden @ U is Uᵀh, and U h is hidden @ U.T",
                lambda x, h, W, U, b: (x @ W.T + h @ U + b).tanh()),
        Mistake("the bias b is missing", lambda x, h, W, U, b: (x @ W.T + h @ U.T).tanh()),
        Mistake("the sum goes through a sigmoid not through a tanh",
                lambda x, h, W, U, b: (x @ W.T + h @ U.T + b).sigmoid()),
        Mistake("the tanh is taken of each part and not of their sum",
                lambda x, h, W, U, b: (x @ W.T + b).tanh() + (h @ U.T).tanh()),
    ),
    model=cell_model(1, "hidden"),
    laws=LAWS,
)  # fmt: skip


# -- LSTM ------------------------------------------------------------------------------------------------------------


def _lstm(x: Tensor, hidden: Tensor, cell: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    def reordered(weight: Tensor) -> Tensor:
        """From the lecture's order (forget, store, update, output) to that of `lstm`, which is PyTorch's."""
        forget, store, update, output = weight.chunk(4)
        return torch.cat([store, forget, update, output])

    new = lstm(F.linear(x, reordered(W), reordered(b)), F.linear(hidden, reordered(U)), {"cell": cell})
    return new["hidden"], new["cell"]


def _lstm_wrong(rule: Function) -> Function:
    """A wrong LSTM: `rule` makes hidden and cell from the old cell and the four sums before their curves."""

    def answer(x: Tensor, hidden: Tensor, cell: Tensor, W: Tensor, U: Tensor, b: Tensor) -> Any:
        return rule(cell, *(x @ W.T + hidden @ U.T + b).chunk(4, dim=-1))

    return answer


def _shown(output: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    return output.sigmoid() * cell.tanh(), cell


lstm_gates = Grader(
    own="layers/recurrent.py: lstm",
    cases=lambda random: weights(random, 4),
    answer=_lstm,
    outputs=(ExpectedOutput("hidden", ("row", "component")), ExpectedOutput("cell", ("row", "component"))),
    mistakes=(
        Mistake("the forget gate multiplies the new content, and the store gate the old cell",
                _lstm_wrong(lambda c, f, i, g, o: _shown(o, i.sigmoid() * c + f.sigmoid() * g.tanh()))),
        Mistake("the update goes through a sigmoid, so that the cell can never fall: use a tanh",
                _lstm_wrong(lambda c, f, i, g, o: _shown(o, f.sigmoid() * c + i.sigmoid() * g.sigmoid()))),
        Mistake("hidden is o * c: the tanh of the cell is missing",
                _lstm_wrong(lambda c, f, i, g, o: (
                    o.sigmoid() * (f.sigmoid() * c + i.sigmoid() * g.tanh()), f.sigmoid() * c + i.sigmoid() * g.tanh()
                ))),
        Mistake("hidden shows the old cell, not the new one",
                _lstm_wrong(lambda c, f, i, g, o: (
                    o.sigmoid() * c.tanh(), f.sigmoid() * c + i.sigmoid() * g.tanh()
                ))),
        Mistake("hidden and cell are returned in the wrong order",
                _lstm_wrong(lambda c, f, i, g, o: _shown(o, f.sigmoid() * c + i.sigmoid() * g.tanh())[::-1])),
        Mistake("the gates are not between 0 and 1: their sigmoid is missing",
                _lstm_wrong(lambda c, f, i, g, o: (o * (f * c + i * g.tanh()).tanh(), f * c + i * g.tanh()))),
        Mistake("the forget gate has no sigmoid",
                _lstm_wrong(lambda c, f, i, g, o: _shown(o, f * c + i.sigmoid() * g.tanh()))),
        Mistake("what is stored is 1 − f: the LSTM has a separate store gate",
                _lstm_wrong(lambda c, f, i, g, o: _shown(o, f.sigmoid() * c + (1 - f.sigmoid()) * g.tanh()))),
        Mistake("the forget gate multiplies the old hidden state, not the old cell",
                lambda x, h, c, W, U, b: _lstm(x, h, h, W, U, b)),
        Mistake("the old cell is forgotten entirely: f * c is missing",
                _lstm_wrong(lambda c, f, i, g, o: _shown(o, i.sigmoid() * g.tanh()))),
    ),
    model=cell_model(4, "hidden", "cell"),
    laws=LAWS,
)  # fmt: skip


# -- GRU -------------------------------------------------------------------------------------------------------------


def _gru_cases(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for x, hidden, _, W, U, b in weights(random, 3):
        yield x, hidden, W, U, b


def _gru_wrong(rule: Function) -> Function:
    """A wrong GRU: `rule` makes the new state from the old one, r and z, and the parts of the candidate."""

    def answer(x: Tensor, hidden: Tensor, W: Tensor, U: Tensor, b: Tensor) -> Tensor:
        word, past = (x @ W.T + b).chunk(3, dim=-1), (hidden @ U.T).chunk(3, dim=-1)
        reset, update = (word[0] + past[0]).sigmoid(), (word[1] + past[1]).sigmoid()
        return rule(hidden, reset, update, word[2], past[2])

    return answer


def _reset_first(x: Tensor, hidden: Tensor, W: Tensor, U: Tensor, b: Tensor) -> Tensor:
    word, past = (x @ W.T + b).chunk(3, dim=-1), (hidden @ U.T).chunk(3, dim=-1)
    reset, update = (word[0] + past[0]).sigmoid(), (word[1] + past[1]).sigmoid()
    candidate = (word[2] + (reset * hidden) @ U.chunk(3)[2].T).tanh()
    return update * hidden + (1 - update) * candidate


gru_gates = Grader(
    own="layers/recurrent.py: gru",
    cases=_gru_cases,
    answer=lambda x, hidden, W, U, b: gru(F.linear(x, W, b), F.linear(hidden, U), {"hidden": hidden})["hidden"],
    outputs=(HIDDEN,),
    mistakes=(
        Mistake("z and 1 − z are swapped: here z is the share of the past that is kept (both forms are in use)",
                _gru_wrong(lambda h, r, z, word, past: (1 - z) * h + z * (word + r * past).tanh())),
        Mistake("the reset gate acts before U_n, as Cho et al. wrote it: here it acts after, r * (U_n h)",
                _reset_first),
        Mistake("the reset gate is missing",
                _gru_wrong(lambda h, r, z, word, past: z * h + (1 - z) * (word + past).tanh())),
        Mistake("the reset gate also multiplies the word: it must filter only the past",
                _gru_wrong(lambda h, r, z, word, past: z * h + (1 - z) * (r * (word + past)).tanh())),
        Mistake("nothing of the past is kept: z * h is missing",
                _gru_wrong(lambda h, r, z, word, past: (1 - z) * (word + r * past).tanh())),
        Mistake("the candidate has no tanh",
                _gru_wrong(lambda h, r, z, word, past: z * h + (1 - z) * (word + r * past))),
        Mistake("reset and update are swapped",
                _gru_wrong(lambda h, r, z, word, past: r * h + (1 - r) * (word + z * past).tanh())),
    ),
    model=cell_model(3, "hidden"),
    laws=LAWS,
)  # fmt: skip

GRADERS = {"rnn-step": rnn_step, "lstm-gates": lstm_gates, "gru-gates": gru_gates}
