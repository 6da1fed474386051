"""C26, look-back: the cost of a minimal GRU, whose gates do not see the state.

GRU       z_t = σ(W x_t + U h_{t-1}),   n_t = tanh(W x_t + r_t * U h_{t-1})      the state takes part
minGRU    z_t = σ(W x_t),               n_t = W x_t                              it does not: h_t is an average

Parity: is the number of ones so far odd? Counting: how many, modulo 3? Both need a state that is turned over by each
one, and a moving average only moves towards something. The latch is the control: name the last marked symbol, for
which a gate needs to see the symbol alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.layers.embedding import Embedding, Output
from regard.layers.layer import Layer
from regard.layers.recurrent import GRU
from regard.layers.scan import MinGRU
from regard.report.figures import Line, Lines
from regard.runs.speed import install
from regard.systems.model import Stack

WIDTH, LENGTH, SYMBOLS, ANSWERS = 16, 24, 6, 3
STEPS, ROWS, RATE, TESTED = 400, 32, 1e-2, 300
KINDS: dict[str, tuple[Callable[[int, int], Layer], int]] = {  # the layer, and how many of them
    "gru": (GRU, 1),
    "mingru": (MinGRU, 1),
    "mingru, two layers": (MinGRU, 2),
}


def experiment(trial: Trial) -> Evidence:
    right_shares: dict[tuple[str, str], list[Tensor]] = {}  # by place in the text, for each seed
    for task in TASKS:
        for kind in KINDS:
            if kind == "mingru, two layers" and task != "parity":
                continue
            right_shares[task, kind] = [right(task, kind, seed) for seed in trial.seeds]
            trial.step(f"{kind}, {task}")
    late = {key: [float(each[LENGTH // 2 :].mean()) for each in seeds] for key, seeds in right_shares.items()}
    lines = [
        Line(f"{kind}, {task}", list(enumerate(torch.stack(seeds).mean(0).tolist(), start=1)))
        for (task, kind), seeds in right_shares.items()
    ]
    figure = Lines("Right answers by place in the text", "words read", "share right", lines)
    rows = tuple({"task": task, "layer": kind, "share right": shares} for (task, kind), shares in late.items())
    return Evidence({quantity: late[key] for key, quantity in QUANTITIES.items()}, (figure,), (), rows)


def right(task: str, kind: str, seed: int, steps: int = STEPS) -> Tensor:
    """The share of right answers at each place of new texts, after training."""
    torch.manual_seed(seed)
    layer, layers = KINDS[kind]
    model = Stack(
        Embedding(SYMBOLS, WIDTH),
        [layer(WIDTH, WIDTH) for _ in range(layers)],
        Output(WIDTH, ANSWERS, tied=False, bias=True),
        finish=nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()),  # so that the answer need not be linear in the state
    )
    install(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    decreasing = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, steps)
    for _ in range(steps):
        text, answers = TASKS[task](ROWS)
        loss = F.cross_entropy(model(text)[0].flatten(0, 1), answers.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        decreasing.step()
    with torch.no_grad():
        text, answers = TASKS[task](TESTED)
        return (model(text)[0].argmax(dim=-1) == answers).float().mean(0)


def parity(rows: int) -> tuple[Tensor, Tensor]:
    text = torch.randint(2, (rows, LENGTH))
    return text, text.cumsum(dim=1) % 2


def counting(rows: int) -> tuple[Tensor, Tensor]:
    text = torch.randint(2, (rows, LENGTH))
    return text, text.cumsum(dim=1) % 3


def latch(rows: int) -> tuple[Tensor, Tensor]:
    """Symbols 3 to 5 are 0 to 2 with a mark; the first is marked."""
    text = torch.randint(SYMBOLS, (rows, LENGTH))
    text[:, 0] = 3 + text[:, 0] % 3
    place = torch.where(text >= 3, torch.arange(LENGTH), -1).cummax(dim=1).values
    return text, text.gather(1, place) - 3


TASKS: dict[str, Callable[[int], tuple[Tensor, Tensor]]] = {"parity": parity, "counting": counting, "latch": latch}
LATE = f"share right in the second half of {LENGTH} words"
QUANTITIES = {
    ("parity", "gru"): f"parity, one layer of gru: {LATE}",
    ("parity", "mingru"): f"parity, one layer of mingru: {LATE}",
    ("counting", "gru"): f"counting modulo 3, one layer of gru: {LATE}",
    ("counting", "mingru"): f"counting modulo 3, one layer of mingru: {LATE}",
    ("latch", "gru"): f"last marked symbol, one layer of gru: {LATE}",
    ("latch", "mingru"): f"last marked symbol, one layer of mingru: {LATE}",
    ("parity", "mingru, two layers"): f"parity, two layers of mingru: {LATE}",
}

CLAIM = Claim(
    name="look-back",
    number="C26",
    kinds=("measured",),
    quote="lack of parallelism across timesteps - I can only compute h_n after computing h_{n-1}",
    where="000:32–34; 003:225–231",
    statement=(
        "A recurrence that need not wait pays a price: a layer whose gates do not see the state (minGRU) learns "
        "neither parity nor counting, in which each symbol must change the state; a GRU learns both."
    ),
    conditions=(
        f"One layer of width {WIDTH} and a readout with one hidden layer; texts of {LENGTH} random bits with an "
        f"answer at each place; {STEPS} steps of Adam; measured on the second half of the places of new texts."
    ),
    control_words=(
        "If a gate needs to see only the symbol itself (the last marked symbol), the minimal GRU learns the task as "
        "well as the GRU does."
    ),
    breaks=(
        "More layers do not help at this size, because each is again an average. A negative factor of h would help "
        "(1 − z cannot be negative), or a matrix instead of one gate for each component, as in the delta rule."
    ),
    expected=(
        Expect(QUANTITIES["parity", "gru"], "at least", 0.9),
        Expect(QUANTITIES["parity", "mingru"], "at most", 0.65),
        Expect(QUANTITIES["counting", "gru"], "at least", 0.8),
        Expect(QUANTITIES["counting", "mingru"], "at most", 0.65),
    ),
    control=(
        Expect(QUANTITIES["latch", "gru"], "at least", 0.95),
        Expect(QUANTITIES["latch", "mingru"], "at least", 0.95),
    ),
    besides=(Expect(QUANTITIES["parity", "mingru, two layers"], "at most", 0.65),),
    experiment=experiment,
    quick_words="three seeds",
    cost=120.0,
)
