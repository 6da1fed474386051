"""C9, symmetry: what "you" is to "love", and "love" to "you". Scores XXᵀ are symmetric, the weights made of them not.

    s_ij = x_iᵀx_j = s_ji,     w_ij = exp(s_ij) / Σ_j' exp(s_ij') ≠ w_ji,     but w_ij w_jk w_ki = w_ik w_kj w_ji
    s_ij = (W_q x_i)ᵀ(W_k x_j) is symmetric for every X exactly when W_qᵀW_k is

Each row is divided by a sum of its own, so that w_ij / w_ji is the ratio of two sums; around a triangle they cancel.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch

from regard.claims.claim import Claim, Evidence, Expect, Trial, Worked
from regard.pooling import attention
from regard.report.figures import Heat

SENTENCE = ("I", "love", "you", "a", "lot")


def experiment(trial: Trial) -> Evidence:
    quantities = (SCORES, WEIGHTS, TRIANGLE, TWO, PRODUCT, SAME, TWO_TRIANGLE)
    measured: dict[str, list[float]] = {name: [] for name in quantities}
    for seed in trial.seeds:
        random = np.random.default_rng(seed)
        words, width = int(random.integers(4, 12)), int(random.integers(2, 9))
        x = random.normal(size=(words, width))
        W_q, W_k = random.normal(size=(2, width, width)) / math.sqrt(width)
        symmetric = random.normal(size=(width, width))
        symmetric = np.linalg.solve(W_q.T, symmetric + symmetric.T)  # W_k with W_qᵀW_k symmetric, unlike W_q
        scores, weights = looked(x, x)
        measured[SCORES].append(asymmetry(scores))
        measured[WEIGHTS].append(asymmetry(weights))
        measured[TRIANGLE].append(around(weights))
        scores, weights = looked(x @ W_q.T, x @ W_k.T)
        measured[TWO].append(asymmetry(scores))
        measured[TWO_TRIANGLE].append(around(weights))
        measured[PRODUCT].append(asymmetry(looked(x @ W_q.T, x @ symmetric.T)[0]))
        measured[SAME].append(asymmetry(looked(x @ W_q.T, x @ W_q.T)[0]))
        trial.step(f"draw {seed}")
    return Evidence(measured, figures=(heat(),))


def looked(query: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores [n, n] of every word with every word, and the weights that follow."""
    scores = query @ keys.T
    weights: np.ndarray = attention(query, keys, keys, "dot").weights
    return scores, weights


def asymmetry(matrix: np.ndarray) -> float:
    """The largest |m_ij − m_ji|, in parts of the largest entry."""
    return float(abs(matrix - matrix.T).max() / abs(matrix).max())


def around(weights: np.ndarray) -> float:
    """The largest |log(w_ij w_jk w_ki) − log(w_ik w_kj w_ji)| of three words."""
    one_way = np.log(weights) - np.log(weights).T  # log w_ij / w_ji
    turn = one_way[:, :, None] + one_way[None] + one_way.T[:, None, :]  # i, j, k: ij + jk + ki
    return float(abs(turn).max())


# -- the notes' sentence ---------------------------------------------------------------------------------------------


NOTED = [[0.75, 0.25, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0.75, 0.25], [0, 0, 0, 0, 1]]


def sentence() -> np.ndarray:
    """Word vectors whose softmax(XXᵀ) is the notes' table: each block of words on separate axes, far from the rest.

    For two words with x_2 = (r, 0) and x_1 = (r, √(log o)), the first has odds o for itself, the second even ones; for
    a word that looks at itself alone, x_2 is much longer than x_1's share on its axis.
    """
    r = 7.0  # words of other blocks weigh e^(−r²) = 5e-22
    x = np.zeros((5, 5))
    x[0, :2], x[1, :2] = (r, math.sqrt(math.log(3))), (r, 0.0)  # I: 3/4, 1/4; love: 1/2, 1/2
    x[2, 2] = r  # you: 1
    x[3, 3:], x[4, 3:] = (r, math.sqrt(r**2 + math.log(3))), (2 * r, 0.0)  # a: 3/4, 1/4; lot: 0, 1
    return x


def table() -> np.ndarray:
    x = sentence()
    weights: np.ndarray = attention(x, x, x, "dot").weights
    return weights


def heat() -> Heat:
    return Heat(
        title="The notes' table is a softmax(XXᵀ): symmetric scores, unequal weights",
        rows=SENTENCE,
        columns=SENTENCE,
        values=[[float(weight) for weight in row] for row in table()],
        x="key, the word that is looked at",
        y="query, the word that looks",
        z="weight",
        low=0.0,
        high=1.0,
    )


def learned_table() -> np.ndarray:
    """softmax(XXᵀ) of word vectors that were learned, from random ones, to give the notes' weights."""
    torch.manual_seed(0)
    x, wanted = torch.randn(5, 8, dtype=torch.float64, requires_grad=True), torch.tensor(NOTED, dtype=torch.float64)
    optimiser = torch.optim.Adam([x], lr=0.05)
    for _ in range(400):
        loss = -(wanted * (x @ x.T).log_softmax(-1)).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    vectors = x.detach().numpy()
    weights: np.ndarray = attention(vectors, vectors, vectors, "dot").weights
    return weights


def worked() -> list[Worked]:
    noted = ("3/4 1/4 0 0 0", "1/2 1/2 0 0 0", "0 0 1 0 0", "0 0 0 3/4 1/4", "0 0 0 0 1")
    rows = [
        Worked(f"weights of {word!r}, learned", words, fractions(row), words == fractions(row), f"001:{167 + at}")
        for at, (word, words, row) in enumerate(zip(SENTENCE, noted, learned_table()))
    ]
    amo = attention(np.log([1.0, 3.0, 1e-300, 1e-300, 1e-300]), np.eye(5), np.eye(5), "dot").output  # values: the words
    sentence = " + ".join(f"{Fraction(w).limit_denominator(8)} {word}" for w, word in zip(amo, SENTENCE) if w > 1e-12)
    return [Worked("amo", "1/4 I + 3/4 love", sentence, sentence == "1/4 I + 3/4 love", "001:143"), *rows]


def fractions(row: np.ndarray, within: float = 0.01) -> str:
    near = [Fraction(float(weight)).limit_denominator(4) for weight in row]
    exact = all(abs(float(part) - weight) < within for part, weight in zip(near, row))
    return " ".join(map(str, near if exact else row))


SCORES = "asymmetry of the scores XXᵀ"
BEYOND_ROUNDING = 1e-6  # not symmetric is anything that fp64 could not have made of symmetric numbers
WEIGHTS = "asymmetry of the weights softmax(XXᵀ)"
TRIANGLE = "around three words, largest |log w_ij w_jk w_ki − log w_ik w_kj w_ji|"
TWO = "asymmetry of the scores with W_q ≠ W_k"
PRODUCT = "asymmetry of the scores with W_q ≠ W_k but W_qᵀW_k symmetric"
SAME = "asymmetry of the scores with W_q = W_k"
TWO_TRIANGLE = "around three words, the same with W_q ≠ W_k"

CLAIM = Claim(
    name="symmetry",
    number="C9",
    kinds=("identity",),
    quote="W_{ij} … i \\rightarrow \\text{love} … j \\rightarrow \\text{you} … = q_i^T k_j … W_{ji} = q_i^T k_i",
    where="001:174–178",
    statement="Scores XXᵀ are symmetric; the weights after the softmax are not, though around any three words "
    "w_ij w_jk w_ki = w_ik w_kj w_ji. With W_q and W_k, the scores are symmetric for every X if and only if "
    "W_qᵀW_k is.",
    conditions="Dot products, no mask, random word vectors and projections, fp64. 001:178 is read as W_ji = q_jᵀk_i.",
    control_words="With W_q = W_k, the scores are symmetric again; with W_q ≠ W_k, the identity for three words fails.",
    breaks=(
        "A causal mask makes every matrix of weights one-sided. W_q ≠ W_k does not always break the symmetry: if "
        "W_qᵀW_k happens to be symmetric, the scores stay symmetric. The softmax makes the weights unequal anyway; "
        "what two different matrices add is that the identity for three words no longer holds."
    ),
    expected=(
        Expect(SCORES, "at most", 1e-12, over="draws"),
        Expect(WEIGHTS, "at least", BEYOND_ROUNDING, over="draws"),
        Expect(TRIANGLE, "at most", 1e-9, over="draws"),
        Expect(PRODUCT, "at most", 1e-9, over="draws"),
        Expect(TWO, "at least", BEYOND_ROUNDING, over="draws"),
    ),
    control=(
        Expect(SAME, "at most", 1e-12, over="draws"),
        Expect(TWO_TRIANGLE, "at least", BEYOND_ROUNDING, over="draws"),
    ),
    experiment=experiment,
    worked=worked,
    quick_words="fewer draws",
    seeds=50,
    quick_seeds=10,
)
