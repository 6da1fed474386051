"""C24, recall: attention whose kernel factorises is a recurrent network, and pays for its fixed state with recall.

parallel    y_t = Σ_{j ≤ t} φ(q_t)·φ(k_j) v_j / Σ_{j ≤ t} φ(q_t)·φ(k_j)          all words at once, in chunks
recurrent   S_t = S_{t-1} + φ(k_t) v_tᵀ,   y_t = S_tᵀφ(q_t) / z_t·φ(q_t)          word by word

Both are computed and compared at growing lengths. Then one layer of each kind of attention learns to recall: a text of
pairs (key, value), each pair one word, and after them keys whose values it must name. The keys are vectors of 32
components, and so the state of linear attention is a matrix of 32 × 32 numbers however many pairs it must hold.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.through_time import opening
from regard.layers.attention import CausalSelfAttention
from regard.layers.matrix_state import LinearAttention
from regard.layers.state import Span
from regard.report.figures import Line, Lines

LENGTHS, QUICK_LENGTHS = (64, 256, 1024), (64, 256)
KEYS, VALUES, WIDTH, ASKED = 128, 16, 32, 8
FEW, MANY = 2, 64
STEPS, ROWS, RATE, TESTED = 400, 32, 5e-3, 200
KINDS = {
    "softmax": lambda: CausalSelfAttention(WIDTH, 1),
    "linear": lambda: LinearAttention(WIDTH, 1),
    "delta": lambda: LinearAttention(WIDTH, 1, feature="relu", rule="delta"),
}


def experiment(trial: Trial) -> Evidence:
    lengths = QUICK_LENGTHS if trial.quick else LENGTHS
    same, reset, grown = [], [], []
    for seed in trial.seeds:
        torch.manual_seed(seed)
        for feature, decay, rule in (("elu", "none", "sum"), ("gaussian", "fixed", "sum"), ("relu", "gated", "delta")):
            layer = LinearAttention(WIDTH, 2, feature=feature, decay=decay, rule=rule).double()
            same += [difference(layer, length) for length in lengths]
        plain = LinearAttention(WIDTH, 2).double()
        reset.append(difference(plain, lengths[0], forgets=True))
        grown += [growth(plain, length) for length in lengths]
        trial.step(f"both forms, draw {seed}")
    measured: dict[str, list[float]] = {SAME: same, RESET: reset, GROWN: grown}
    measured[CACHE] = [growth(CausalSelfAttention(WIDTH, 2).double(), lengths[0])]
    recall: dict[tuple[str, int], list[float]] = {}
    for pairs in (FEW, MANY):
        for kind in KINDS:
            recall[kind, pairs] = [recalled(kind, pairs, seed) for seed in trial.seeds]
            trial.step(f"{kind}, {pairs} pairs")
    measured |= {
        SOFTMAX_MANY: recall["softmax", MANY],
        LINEAR_MANY: recall["linear", MANY],
        SOFTMAX_FEW: recall["softmax", FEW],
        LINEAR_FEW: recall["linear", FEW],
        DELTA_MANY: recall["delta", MANY],
    }
    lines = [
        Line(kind, [(pairs, sum(recall[kind, pairs]) / len(trial.seeds)) for pairs in (FEW, MANY)]) for kind in KINDS
    ]
    rows = tuple(
        {"attention": kind, "pairs": pairs, "share recalled": shares} for (kind, pairs), shares in recall.items()
    )
    figure = Lines("Values recalled, by the number of pairs", "pairs", "share recalled", lines, log_x=True)
    return Evidence(measured, (figure,), (), rows)


# -- one function ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def difference(layer: LinearAttention, length: int, *, forgets: bool = False) -> float:
    """The largest difference of a component between both forms; `forgets`: the second half begins a new state."""
    x = torch.randn(1, length, WIDTH, dtype=torch.float64)
    at_once, _ = layer(x, *opening(layer, x))
    state, span = opening(layer, x)
    halves = []
    for part in x.chunk(2, dim=1):
        half, after, _ = layer.explain(part, state, span)
        halves.append(half)
        state = state if forgets else after
        span = Span(span.start + part.size(1))
    return float((at_once - torch.cat(halves, dim=1)).abs().max())


@torch.no_grad()
def growth(layer: CausalSelfAttention, length: int) -> float:
    """Numbers that the state gains with each further word."""
    sizes = []
    for words in (length, 2 * length):
        x = torch.randn(1, words, WIDTH, dtype=torch.float64)
        _, state = layer(x, *opening(layer, x))
        sizes.append(sum(leaf.numel() for leaf in state.values()))
    return (sizes[1] - sizes[0]) / length


# -- recall ----------------------------------------------------------------------------------------------------------


class Recaller(nn.Module):
    """One attention layer: each word is the sum of a pair's key and value, or a key alone, whose value is predicted."""

    def __init__(self, look: CausalSelfAttention) -> None:
        super().__init__()
        self.key, self.value = nn.Embedding(KEYS, WIDTH), nn.Embedding(VALUES + 1, WIDTH)  # the last: no value
        self.norm, self.look, self.output = nn.LayerNorm(WIDTH), look, nn.Linear(WIDTH, VALUES)

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        x = self.norm(self.key(keys) + self.value(values))
        context, _ = self.look(x, *opening(self.look, x))
        return self.output(context[:, -ASKED:])


def texts(rows: int, pairs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values of the words, and the values that the last words ask for."""
    keys = torch.rand(rows, KEYS).argsort(dim=1)[:, :pairs]  # all different
    values, asked = torch.randint(VALUES, (rows, pairs)), torch.randint(pairs, (rows, ASKED))
    keys = torch.cat([keys, keys.gather(1, asked)], dim=1)
    return keys, F.pad(values, (0, ASKED), value=VALUES), values.gather(1, asked)


def recalled(kind: str, pairs: int, seed: int, steps: int = STEPS) -> float:
    """The share of values that a trained layer names, on new texts."""
    torch.manual_seed(seed)
    model = Recaller(KINDS[kind]())
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    decreasing = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, steps)
    for _ in range(steps):
        keys, values, wanted = texts(ROWS, pairs)
        loss = F.cross_entropy(model(keys, values).flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        decreasing.step()
    with torch.no_grad():
        keys, values, wanted = texts(TESTED, pairs)
        return float((model(keys, values).argmax(dim=-1) == wanted).float().mean())


SAME = "largest difference of a component, in chunks against word by word, at growing length"
RESET = "the same where the second half of the text begins with an empty state"
GROWN = "numbers that the state gains with each further word, linear attention"
CACHE = "numbers that the state gains with each further word, softmax attention"
SOFTMAX_MANY = f"share of values recalled among {MANY} pairs, softmax attention"
LINEAR_MANY = f"share of values recalled among {MANY} pairs, linear attention"
SOFTMAX_FEW = f"share of values recalled among {FEW} pairs, softmax attention"
LINEAR_FEW = f"share of values recalled among {FEW} pairs, linear attention"
DELTA_MANY = f"share of values recalled among {MANY} pairs, linear attention by the delta rule"

CLAIM = Claim(
    name="recall",
    number="C24",
    kinds=("identity", "measured"),
    quote="Self-attention: parallel at training time, sequential at test-time",
    where="000:54–56; 004:165",
    statement="Attention with a kernel that factorizes, α(q, k) = φ(q)·φ(k), is the same function in parallel and as a "
    "recurrent network with a state of fixed size; but it loses exact recall: among many pairs, it names far "
    "fewer values than softmax attention does.",
    conditions=f"Both forms: fp64, three combinations of φ, decay and rule, {LENGTHS[0]} to {LENGTHS[-1]} words. "
    f"Recall: one layer, one head of {WIDTH} components, φ = elu + 1, {KEYS} keys and {VALUES} values, a pair is one "
    f"word; {STEPS} steps of Adam on texts of as many pairs as in the test.",
    control_words=(
        "A recurrent form that drops its state in the middle differs, and the state of softmax attention grows. "
        f"Among {FEW} pairs, linear attention recalls nearly everything, so it can do the task."
    ),
    breaks=(
        f"Recall was measured among {FEW} and among {MANY} pairs, with keys of {WIDTH} features. Where it fails in "
        "between is not decided, nor whether the number of pairs or the length of the text is the cause. The delta "
        f"rule, which replaces what a key had stored, does not help among {MANY} pairs."
    ),
    expected=(
        Expect(SAME, "at most", 1e-9, over="draws"),
        Expect(GROWN, "within", 0.0, 0.0, over="draws"),
        Expect(SOFTMAX_MANY, "at least", 0.95),
        Expect(LINEAR_MANY, "at most", 0.5),
    ),
    control=(
        Expect(RESET, "at least", 1e-3, over="draws"),
        Expect(CACHE, "at least", 1.0, over="draws"),
        Expect(SOFTMAX_FEW, "at least", 0.9),
        Expect(LINEAR_FEW, "at least", 0.8),
    ),
    besides=(Expect(DELTA_MANY, "at most", 0.75),),
    experiment=experiment,
    quick_words=f"three seeds, and both forms at up to {QUICK_LENGTHS[-1]} words",
    cost=100.0,
)
