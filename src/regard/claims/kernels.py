"""C16, kernels: attention by nearness is a local average, and the bandwidth says how local.

    ŷ(q) = Σ_i K(u_i) y_i / Σ_i K(u_i),   u_i = |q − x_i| / h                      Nadaraya 1964, Watson 1964

h → ∞ is the mean of all values, h → 0 the nearest one; in between noise is averaged away and the curve is kept. Tried
on y = sin 2x + x/2 + noise, 100 points on [0, 5], against the curve itself.
"""

from __future__ import annotations

import numpy as np

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.layers.scores import KERNELS
from regard.pooling import Pooled, attention
from regard.report.figures import Figure, Line, Lines

POINTS, REACH, NOISE = 100, 5.0, 0.5
BOUNDED = tuple(kernel for kernel in KERNELS if kernel != "gaussian")
QUERIES = np.linspace(0.0, REACH, 101)
BANDWIDTHS = tuple(10 ** (k / 4) for k in range(-8, 9))
TINY, HUGE = 1e-5, 1e5


def experiment(trial: Trial) -> Evidence:
    bandwidth = trial.knob("bandwidth")
    quantities = (BEYOND, REACHES, UNDEFINED, DEFINED, MEAN, NEAREST, VANISHED, TO_MEAN, TO_NEAREST, NO_CURVE)
    measured: dict[str, list[float]] = {name: [] for name in quantities}
    for seed in trial.seeds:
        random = np.random.default_rng(seed)
        x, y = points(random)
        far = np.append(QUERIES, [REACH + 2 * bandwidth, -3 * bandwidth])  # two queries that no point is near to
        apart = abs(far[:, None] - x)
        for kernel in BOUNDED:
            measured[BEYOND].append(weight_beyond(kernel, far, x, y, bandwidth))
            wrong = asked(kernel, far, x, y, bandwidth).empty != (apart.min(axis=1) > bandwidth)
            measured[UNDEFINED].append(float(wrong.sum()))
            measured[VANISHED].append(float(asked(kernel, QUERIES, x, y, TINY).empty.mean()))
        measured[REACHES].append(weight_beyond("gaussian", QUERIES, x, y, bandwidth))
        measured[DEFINED].append(float(asked("gaussian", far, x, y, bandwidth).empty.sum()))
        nearest = y[abs(QUERIES[:, None] - x).argmin(axis=1)]
        measured[NEAREST].append(float(abs(asked("gaussian", QUERIES, x, y, TINY).output - nearest).max()))
        measured[MEAN].append(max(abs(asked(k, QUERIES, x, y, HUGE).output - y.mean()).max() for k in KERNELS))
        local = max(error(asked(kernel, QUERIES, x, y, bandwidth).output) for kernel in KERNELS)
        measured[TO_MEAN].append(local / error(np.full_like(QUERIES, y.mean())))
        measured[TO_NEAREST].append(local / error(nearest))
        mixed = random.permutation(y)
        blind = min(error(asked(kernel, QUERIES, x, mixed, bandwidth).output) for kernel in KERNELS)
        measured[NO_CURVE].append(blind / error(np.full_like(QUERIES, y.mean())))
        trial.step(f"seed {seed}")
    return Evidence(
        measured,
        figures=(by_bandwidth(trial), fits(trial)),
        remarks=(
            "004:165 writes max(0, 1 − ‖q − k‖) and calls it Epanechnikov: that is the triangular kernel. "
            "Epanechnikov's is max(0, 1 − u²). At u = ½ the two are "
            f"{one('triangular', 0.5):g} and {one('epanechnikov', 0.5):g} of their height.",
        ),
    )


def curve(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x) + x / 2


def points(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = random.uniform(0.0, REACH, POINTS)
    return x, curve(x) + random.normal(0.0, NOISE, POINTS)


def asked(kernel: str, queries: np.ndarray, x: np.ndarray, y: np.ndarray, bandwidth: float) -> Pooled:
    return attention(queries, x, y, kernel, bandwidth=bandwidth)


def weight_beyond(kernel: str, queries: np.ndarray, x: np.ndarray, y: np.ndarray, bandwidth: float) -> float:
    """The largest total weight of a query on points further than h, over queries with a nearer point."""
    answer = asked(kernel, queries, x, y, bandwidth)
    beyond = np.where(abs(queries[:, None] - x) > bandwidth, answer.weights, 0.0).sum(axis=1)
    return float(beyond[~answer.empty].max())


def error(estimate: np.ndarray) -> float:
    """Mean squared distance from the curve without its noise."""
    return float(((estimate - curve(QUERIES)) ** 2).mean())


def one(kernel: str, u: float) -> float:
    """K(u) / K(0), as two keys share their weight."""
    near, far = asked(kernel, np.array(0.0), np.array([0.0, u]), np.zeros(2), 1.0).weights
    return float(far / near)


def by_bandwidth(trial: Trial) -> Figure:
    lines = []
    for kernel in KERNELS:
        errors = np.zeros(len(BANDWIDTHS))
        for seed in trial.seeds:
            x, y = points(np.random.default_rng(seed))
            errors += [error(asked(kernel, QUERIES, x, y, h).output) / len(trial.seeds) for h in BANDWIDTHS]
        lines.append(Line(kernel, list(zip(BANDWIDTHS, errors))))
    return Lines(
        title="Neither too near nor too far: error against bandwidth",
        x="bandwidth h",
        y="mean squared error against the curve",
        lines=lines,
        log_x=True,
        zero_y=True,
    )


def fits(trial: Trial) -> Figure:
    x, y = points(np.random.default_rng(trial.seeds[0]))
    bandwidth = trial.knob("bandwidth")
    shown = [("curve", curve(QUERIES))]
    for name, h in ((f"h = {bandwidth:g}", bandwidth), ("h → 0", TINY), ("h → ∞", HUGE)):
        shown.append((f"gaussian, {name}", asked("gaussian", QUERIES, x, y, h).output))
    lines = [Line(name, list(zip(QUERIES, estimate))) for name, estimate in shown]
    return Lines(
        title="One sample and its local averages",
        x="x",
        y="y",
        lines=[Line("points", list(zip(x, y)), joined=False), *lines],
    )


BEYOND = "weight on points further than h: boxcar, triangular, epanechnikov"
REACHES = "weight on points further than h, for some query: gaussian"
UNDEFINED = "queries where being undefined and having no point within h disagree: boxcar, triangular, epanechnikov"
DEFINED = "queries that are undefined: gaussian"
MEAN = "h → ∞: largest distance from the mean, all four kernels"
NEAREST = "h → 0: largest distance from the nearest point's value, gaussian"
VANISHED = "h → 0: share of queries that are undefined, boxcar, triangular, epanechnikov"
TO_MEAN = "squared error of the worst kernel's local average, as a fraction of the mean's"
TO_NEAREST = "squared error of the worst kernel's local average, as a fraction of the nearest point's"
NO_CURVE = "squared error of the best kernel's local average, as a fraction of the mean's, values shuffled"

CLAIM = Claim(
    name="kernels",
    number="C16",
    kinds=("identity", "measured"),
    quote="Some tommon kernels … Gaussiay Box Can … max (0, 1-119-k11) Epanechikov … Related to KDE/Pargen Windows",
    where="004:165",
    statement="Each kernel is a local average: it beats the mean of all values and the nearest value. Boxcar, "
    "triangular and Epanechnikov ignore keys beyond h and are undefined if none is nearer; the Gaussian never is. "
    "h → ∞ gives the mean and, for the Gaussian, h → 0 gives the nearest neighbor.",
    conditions=(
        "100 noisy points of a smooth curve (noise ½), bandwidth 0.2 by default, error against the curve without noise."
    ),
    control_words=(
        "With the values shuffled among the points, nothing is local, and the local average no longer halves the "
        "mean's error. The Gaussian does give weight beyond h."
    ),
    breaks=(
        "For kernels of bounded support, h → 0 does not give the nearest neighbor but 0/0 everywhere; Regard then "
        "uses uniform weights and counts such queries. A bandwidth that is too small keeps the noise, and one that "
        "is too large loses the curve."
    ),
    expected=(
        Expect(BEYOND, "at most", 0.0, over="draws"),
        Expect(UNDEFINED, "at most", 0.0, over="draws"),
        Expect(DEFINED, "at most", 0.0, over="draws"),
        Expect(MEAN, "at most", 1e-3, over="draws"),
        Expect(NEAREST, "at most", 1e-6, over="draws"),
        Expect(TO_MEAN, "at most", 0.5),
        Expect(TO_NEAREST, "at most", 0.8),
    ),
    control=(Expect(NO_CURVE, "at least", 0.5), Expect(REACHES, "at least", 0.01, over="draws")),
    besides=(Expect(VANISHED, "at least", 0.9, over="draws"),),
    experiment=experiment,
    knobs={"bandwidth": 0.2},
    limits={"bandwidth": (0.02, 100.0)},
    quick_words="10 seeds",
    seeds=40,
    quick_seeds=10,
    cost=2,
)
