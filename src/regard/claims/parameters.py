"""C12, parameters: a recurrent network reads a text of any length with the same weights.

|θ| = H D + H H + H   at every length;   a window of n words needs n E H of them, a table of positions n D
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.claims.at_work import weights_at_work, word_vectors
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.report.figures import Line, Lines
from regard.systems.catalogue import load_class, load_module
from regard.systems.model import Model

VOCABULARY, WIDTH, NARROW = 30, 16, 8
LENGTHS = (8, 16, 32, 64, 128, 256)
Told = Callable[[int], dict[str, Any]]  # the settings of a model that looks back at this many words
READERS: dict[str, tuple[str, Told]] = {
    "rnn": ("rnn", lambda length: {"layers": 1, "dropout": 0.0}),
    "lstm": ("lstm", lambda length: {"layers": 1, "dropout": 0.0}),
    "gru": ("gru", lambda length: {"layers": 1, "dropout": 0.0}),
    "dan": ("dan", lambda length: {"layers": 1}),
    "nnlm": ("nnlm", lambda length: {"order": length + 1, "embedding": NARROW}),
    "gpt, learned positions": ("gpt", lambda length: {"context": length, "layers": 1, "heads": 2}),
    "gpt, sinusoids": ("gpt", lambda length: {"context": length, "layers": 1, "heads": 2, "position": "sinusoid"}),
    "self-attention, one-hot positions": (
        "self-attention",
        lambda length: {"context": length, "width": WIDTH + length, "position": "one-hot", "combine": "concatenate"},
    ),
}
RECURRENT = ("rnn", "lstm", "gru")


def experiment(trial: Trial) -> Evidence:
    lengths = LENGTHS[:4] if trial.quick else LENGTHS
    torch.manual_seed(trial.seeds[0])
    counts = {name: [at_work(reader(name, length), length) for length in lengths] for name in READERS}
    numbers: dict[str, list[float]] = defaultdict(list)
    further = lengths[-1] - lengths[0]
    gained = {name: (sizes[-1] - sizes[0]) / further for name, sizes in counts.items()}
    numbers[SAME] = [float(sizes - counts[name][0]) for name in RECURRENT for sizes in counts[name]]
    numbers |= {WINDOW: [gained["nnlm"]], TABLE: [gained["gpt, learned positions"]]}
    numbers |= {ONE_HOT: [gained["self-attention, one-hot positions"]], DAN: [gained["dan"]]}
    numbers[WAVES] = [gained["gpt, sinusoids"]]
    for seed in trial.seeds:
        for name in READERS:
            torch.manual_seed(seed)
            model = reader(name, lengths[-1])
            numbers[SEEN].append(first_word(model, lengths[-1]))
            if name in ("rnn", "dan"):
                numbers[ORDER if name == "rnn" else NO_ORDER].append(reversal(model, lengths[-1]))
        torch.manual_seed(seed)
        numbers[UNSEEN].append(first_word(reader("nnlm", lengths[-1] - 1), lengths[-1]))
        trial.step(f"draw {seed}")
    figure = Lines(
        "Weights at work in a model that looks back so far", "words it looks back at",
        "weights that its prediction depends on, without word vectors",
        [Line(name, list(zip(lengths, sizes, strict=True))) for name, sizes in counts.items()], log_x=True, log_y=True,
    )  # fmt: skip
    table = tuple({"model": name, **dict(zip(map(str, lengths), sizes))} for name, sizes in counts.items())
    return Evidence(numbers, (figure,), table=table)


def reader(name: str, length: int) -> Model:
    """A model that can look back at `length` words, no larger than it need be."""
    system, settings_at = READERS[name]
    settings = load_module(system).Settings(**{"width": WIDTH, "tied": False, "dropout": 0.0, **settings_at(length)})
    model: Model = load_class(system)(VOCABULARY, settings)
    return model.double().eval()


def at_work(model: Model, length: int) -> int:
    """Weights that the prediction after a text of that length depends on, in any of 8 texts."""
    logits, _ = model(torch.cat([text(length) for _ in range(8)]))
    return weights_at_work(model, logits[:, -1])


def first_word(model: Model, length: int) -> float:
    """‖∂(last hidden vector, seen from a random side)/∂(first word's vector)‖ for a text of that length."""
    tokens = text(length)
    hidden, _ = model.read(tokens)
    (gradient,) = torch.autograd.grad((hidden[0, -1] * torch.randn_like(hidden[0, -1])).sum(), word_vectors(model))
    return float(gradient[0].norm())


@torch.no_grad()
def reversal(model: Model, length: int) -> float:
    """The largest change of a logit at the end of a text when all words but the last two are reversed."""
    tokens = text(length)
    turned = torch.cat([tokens[:, :-2].flip(1), tokens[:, -2:]], 1)
    return float((model(tokens)[0][0, -1] - model(turned)[0][0, -1]).abs().max())


def text(length: int) -> Tensor:
    """Word 0 and then others: what reaches its vector came from the first word."""
    return torch.cat([torch.zeros(1, 1, dtype=torch.int64), torch.randint(1, VOCABULARY, (1, length - 1))], 1)


SAME = "weights at work that rnn, lstm and gru gain with the length of the text"
SEEN = "smallest gradient that reaches the first word's vector from the end of the longest text"
WINDOW = "weights at work added by each further word, nnlm"
TABLE = "weights at work added by each further word, gpt with learned positions"
ONE_HOT = "weights at work added by each further word, self-attention with one-hot positions"
UNSEEN = "gradient that reaches the first word's vector in an nnlm whose window is one word too short"
DAN = "weights at work added by each further word, dan"
WAVES = "weights at work added by each further word, gpt with sinusoids"
ORDER = "change of a logit when the text is reversed, rnn"
NO_ORDER = "change of a logit when the text is reversed, dan"

CLAIM = Claim(
    name="parameters",
    number="C12",
    kinds=("identity",),
    quote="Key property: [params] don't depend on sequence length => can scale to arbitrarily long inputs. However, "
    "it's position-sensitive!",
    where="002:15; 003:83–86",
    statement="The number of parameters of a recurrent network does not depend on the length of the text that it "
    "reads.",
    conditions=(
        f"rnn, lstm and gru of width {WIDTH}. In every model compared, the prediction depends on the first word of "
        "the text, however little (its gradient there is not 0, fp64). The experiment counts the weights at work: "
        "those that the prediction after the text depends on, without the word vectors."
    ),
    control_words="A window of words (nnlm), learned positions (gpt) and one-hot positions (self-attention) cost "
    "parameters for each further word; an nnlm whose window is one word too short does not see the first word.",
    breaks=(
        "This does not distinguish recurrence: the dan is feed-forward, attention with sinusoids has no table, and "
        "neither grows. And reading the first word does not mean remembering it: see vanishing and forgetting."
    ),
    expected=(Expect(SAME, "within", 0.0, 0.0, over="draws"), Expect(SEEN, "at least", 1e-300, over="draws")),
    control=(
        Expect(WINDOW, "within", NARROW * WIDTH, 0.0, over="draws"),
        Expect(TABLE, "within", WIDTH, 0.0, over="draws"),
        Expect(ONE_HOT, "at least", 1.0, over="draws"),
        Expect(UNSEEN, "at most", 0.0, over="draws"),
    ),
    besides=(
        Expect(DAN, "within", 0.0, 0.0, over="draws"),
        Expect(WAVES, "within", 0.0, 0.0, over="draws"),
        Expect(ORDER, "at least", 1e-6, over="draws"),
        Expect(NO_ORDER, "at most", 1e-12, over="draws"),
    ),
    experiment=experiment,
    quick_words="texts of up to 64 words instead of 256, 2 draws instead of 5",
    seeds=5,
    quick_seeds=2,
    cost=5.0,
)
