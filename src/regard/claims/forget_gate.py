"""C29, forget-gate: what an LSTM remembers goes through its forget gate.

    c_t = f_t * c_{t−1} + i_t * g_t        f_t = 0: of all that was stored before t, c_t keeps nothing

A text has one letter of its first kind, one of its second kind later, and noise; at its end one of the two is asked
for. The gate is closed at one word between the two letters: then the first must be lost and the second not. Whether
it is really lost is measured, since h_{t−1} still reaches i_t and g_t; beside it, h_{t−1} is set to 0 as well. Random
components of the other gates and of the update, as many as the gate has, are set to 0 for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.claims.claim import SECOND_LOOK, Claim, Evidence, Expect, Trial
from regard.insight.interventions.changing import Change, Place, changing
from regard.systems.lstm import LSTMModel, Settings

LETTERS, NOISE, LENGTH = 4, 4, 20  # letters of each kind, words of noise, and words of a text with its question
FIRST, CLOSED, SECOND = (2, 4), 9, (12, 14)  # where the letters are, and where the gate is closed
BEFORE, LATE = 0, 17  # where it is closed for comparison: before both letters, and after both
WIDTH, BIAS, ROWS, RATE, TESTED = 32, 3.0, 64, 1e-2, 500
STEPS, QUICK_STEPS = 2000, 100
OTHERS = ("store", "update", "output")
ASK = 2 * LETTERS + NOISE  # and one more: which of the two is asked for
Changes = Sequence[tuple[Place, Change]]


def experiment(trial: Trial) -> Evidence:
    measured: dict[str, list[float]] = {quantity: [] for quantity in QUANTITIES}
    for seed in trial.seeds:
        model = learn(seed, QUICK_STEPS if trial.quick else STEPS)
        torch.manual_seed(1000 + seed)
        changes: dict[str, Changes] = {"": (), "random": random_components()}
        changes |= {f"@{column}": [(Place("layer/0/forget", column=column), 0.0)] for column in (BEFORE, CLOSED, LATE)}
        changes["both"] = [*changes[f"@{CLOSED}"], (Place("layer/0/hidden", column=CLOSED - 1), 0.0)]
        shares = {name: recalled(model, change) for name, change in changes.items()}
        for quantity, (change, letter) in QUANTITIES.items():
            measured[quantity].append(shares[change][letter])
        trial.step(f"seed {seed}")
    return Evidence(measured)


def texts(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Words [R, LENGTH], which letter is asked for (0 or 1) [R], and the letter [R]."""
    words = torch.randint(2 * LETTERS, 2 * LETTERS + NOISE, (rows, LENGTH))
    letters = torch.randint(LETTERS, (rows, 2))
    asked, row = torch.randint(2, (rows,)), torch.arange(rows)
    for kind, (start, end) in enumerate((FIRST, SECOND)):
        words[row, torch.randint(start, end + 1, (rows,))] = letters[:, kind] + kind * LETTERS
    words[:, -1] = ASK + asked
    return words, asked, letters[row, asked]


def learn(seed: int, steps: int) -> LSTMModel:
    torch.manual_seed(seed)
    settings = Settings(layers=1, width=WIDTH, embedding=WIDTH, tied=False, dropout=0.0, forget_bias=BIAS)
    model = LSTMModel(ASK + 2, settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.2)
    for _ in range(steps):
        words, _, answer = texts(ROWS)
        loss = F.cross_entropy(model(words)[0][:, -1], answer)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def random_components() -> Changes:
    """As many as the forget gate has, at the word where it is closed."""
    drawn = torch.randperm(len(OTHERS) * WIDTH)[:WIDTH]
    parts = ((name, drawn[drawn // WIDTH == number] % WIDTH) for number, name in enumerate(OTHERS))
    return [(Place(f"layer/0/{name}", index=index, column=CLOSED), 0.0) for name, index in parts if len(index)]


@torch.no_grad()
def recalled(model: LSTMModel, changes: Changes) -> tuple[float, float]:
    """The shares of first and of second letters that the model names."""
    words, asked, answer = texts(TESTED)
    with changing(model, changes):
        right = model(words)[0][:, -1, :LETTERS].argmax(-1) == answer
    first, second = (float(right[asked == kind].float().mean()) for kind in (0, 1))
    return first, second


GONE = "share of first letters named, forget gate closed between the two"
KEPT = "share of second letters named, forget gate closed between the two"
EARLIER = "share of first letters named, forget gate closed before both"
RANDOM = "share of first letters named, random components of the other gates closed between the two"
INTACT = "share of first letters named, nothing closed"
LATER = "share of second letters named, forget gate closed after both"
BOTH = "share of first letters named, forget gate closed between the two and the hidden state before it 0"
MOST = 1 / LETTERS + 0.1  # of a letter that is lost
QUANTITIES = {  # what is closed, and which letter is asked for
    GONE: (f"@{CLOSED}", 0),
    KEPT: (f"@{CLOSED}", 1),
    EARLIER: (f"@{BEFORE}", 0),
    RANDOM: ("random", 0),
    INTACT: ("", 0),
    LATER: (f"@{LATE}", 1),
    BOTH: ("both", 0),
}

CLAIM = Claim(
    name="forget-gate",
    number="C29",
    kinds=("measured",),
    quote="FORGET GATE LETS RID OF IRRELEVANT INFORMATION … RELY ON GATED CELL TO TRACK INFORMATION THROUGH OUT MANY "
    "TIME STEPS",
    where="003:186–190",
    statement="The forget gate carries what an LSTM remembers: closing it at one word removes what was stored before "
    "that word, and nothing that was stored after it.",
    conditions=(
        f"lstm of width {WIDTH}, forget bias {BIAS:g} at the start, {STEPS} steps. Texts of {LENGTH} words with one "
        f"letter at word {FIRST[0]} to {FIRST[1]} and another at word {SECOND[0]} to {SECOND[1]} (counted from 0), "
        f"each one of {LETTERS}, and a question for one of them at the end; all units of the gate are set to 0 at "
        f"word {CLOSED}. Removed: named in at most {MOST} of the texts, where chance is 1/{LETTERS}; kept: named "
        "in at least 0.9."
    ),
    control_words=(
        "The intact network names both letters. Closing random components of the other gates and of the update, "
        "equally many and at the same word, removes little."
    ),
    breaks=(
        "h_{t−1} also enters the other gates: with f_t = 0, some of the information in it can be stored again. If "
        "the output gate hides a letter, there is nothing to store again."
    ),
    expected=(
        Expect(GONE, "at most", MOST, part="what was stored before"),
        Expect(LATER, "at most", MOST, part="what was stored before"),
        Expect(KEPT, "at least", 0.9, part="nothing stored after"),
        Expect(EARLIER, "at least", 0.9, part="nothing stored after"),
    ),
    control=(Expect(INTACT, "at least", 0.9), Expect(RANDOM, "at least", 0.8, part="what was stored before")),
    besides=(Expect(BOTH, "at most", MOST),),
    experiment=experiment,
    quick_words=f"3 seeds, {QUICK_STEPS} steps instead of {STEPS}",
    seeds=10,
    first_seed=SECOND_LOOK,
    cost=200.0,
)
