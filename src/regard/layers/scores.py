"""Attention scores: how well a key matches a query, and the weights that follow.

dot           s = qᵀk                                gaussian       K(u) = exp(−u²/2)
scaled-dot    s = qᵀk / √d                           boxcar         K(u) = 1 if u ≤ 1, else 0
bilinear      s = qᵀM k                              triangular     K(u) = max(0, 1 − u)
additive      s = vᵀtanh(W_q q + W_k k)              epanechnikov   K(u) = max(0, 1 − u²)

weights       α = exp(s) / Σ exp(s)                  α = K(u) / Σ K(u),   u = ‖q − k‖ / h

The sums go over the keys that a query may see. Dot products: Luong et al. 2015, scaled: Vaswani et al. 2017; additive:
Bahdanau et al. 2015; kernels with bandwidth h: Nadaraya 1964, Watson 1964. Bilinear and additive scores take queries
and keys of different width. A kernel that ends at u = 1 may find no key near: 0/0, and the weights are then uniform.

A new score is a class and an entry of FAMILY here, and its equation in `insight/arithmetic/attention.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.state import State


def by_softmax(scores: Tensor, visible: Tensor) -> State:
    """α = exp(s) / Σ exp(s)."""
    scores = scores.masked_fill(~visible, -torch.inf)
    return {"scores": scores, "weights": scores.softmax(dim=-1)}


def by_ratio(kernel: Tensor, visible: Tensor) -> State:
    """α = K / Σ K; uniform where the sum is 0, and `empty` […, Tq] says where."""
    kernel = kernel.masked_fill(~visible, 0.0)
    total = kernel.sum(dim=-1, keepdim=True)
    empty = total == 0
    allowed = visible.to(kernel.dtype)
    uniform = allowed / allowed.sum(dim=-1, keepdim=True)
    weights = torch.where(empty, uniform, kernel / total.masked_fill(empty, 1.0))
    return {"scores": kernel, "weights": weights, "empty": empty[..., 0]}


class Score(nn.Module):
    """queries […, Tq, d], keys […, Tk, d′] and what may be seen [… or 1, Tq, Tk] → weights […, Tq, Tk].

    Each row of the weights is at least 0 everywhere, 0 where nothing may be seen, and sums to 1; every query must see
    at least one key. The weights are the softmax of `compare`, unless `weigh` is overridden.
    """

    scale: float | None = None  # of a score that is qᵀk times a number

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()

    def prepare(self, keys: Tensor) -> Tensor:
        """The part that depends on the keys alone, computed once for any number of queries."""
        return keys

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """The scores s, or for a kernel K(u): […, Tq, Tk]."""
        raise NotImplementedError

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.compare(query, self.prepare(keys))

    def weigh(self, scores: Tensor, visible: Tensor) -> State:
        """The weights that follow from the scores; for a kernel that ends, `empty` [… , Tq]: where no key was near."""
        return by_softmax(scores, visible)

    def forward(self, query: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
        return self.explain(query, keys, visible)["weights"]

    def explain(self, query: Tensor, keys: Tensor, visible: Tensor) -> State:
        """The weights, with their intermediate values."""
        parts = self.weigh(self.score(query, keys), visible)
        return {**parts, "weights": parts["weights"].to(query.dtype)}


class Dot(Score):
    scale = 1.0

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__(query_width, key_width)
        if query_width != key_width:
            raise ValueError(f"queries of width {query_width} and keys of width {key_width} have no dot product")

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(-2, -1)


class ScaledDot(Dot):
    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__(query_width, key_width)
        self.scale = query_width**-0.5

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().compare(query, keys) / query.size(-1) ** 0.5


class Bilinear(Score):
    """M is initialized so that scores have the size of scaled dot products."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__(query_width, key_width)
        self.matrix = nn.Parameter(torch.empty(query_width, key_width))
        nn.init.normal_(self.matrix, std=(query_width * key_width) ** -0.5)

    def prepare(self, keys: Tensor) -> Tensor:
        return keys @ self.matrix.T  # M k

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(-2, -1)


class Additive(Score):
    """Query and key are mapped to a common width (default: the larger one); v scores the tanh of their sum."""

    def __init__(self, query_width: int, key_width: int, width: int | None = None) -> None:
        super().__init__(query_width, key_width)
        width = width or max(query_width, key_width)
        self.query = nn.Linear(query_width, width, bias=False)
        self.key = nn.Linear(key_width, width, bias=False)
        self.judge = nn.Linear(width, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        return self.key(keys)

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        both = self.query(query)[..., :, None, :] + keys[..., None, :, :]  # […, Tq, Tk, width]
        return self.judge(both.tanh())[..., 0]


class Kernel(Score):
    """Weights by distance: values whose keys are close to the query, within a bandwidth h, are averaged."""

    def __init__(self, query_width: int, key_width: int, bandwidth: float = 1.0) -> None:
        super().__init__(query_width, key_width)
        if query_width != key_width:
            raise ValueError(f"queries of width {query_width} and keys of width {key_width} have no distance")
        self.bandwidth = bandwidth

    def distance(self, query: Tensor, keys: Tensor) -> Tensor:
        """u = ‖q − k‖ / h, from the differences themselves: ‖q‖² − 2qᵀk + ‖k‖² would lose precision for near keys."""
        exact = torch.promote_types(query.dtype, torch.float32)
        apart = torch.cdist(query.to(exact), keys.to(exact), compute_mode="donot_use_mm_for_euclid_dist")
        return apart / self.bandwidth  # where q = k its gradient is 0


class Gaussian(Kernel):
    """Never 0: its weights are a softmax of −u²/2, which is exact however far all keys are."""

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        return -0.5 * self.distance(query, keys).square()


class Bounded(Kernel):
    """A kernel that is 0 beyond the bandwidth, so a query may have no key in reach."""

    def weigh(self, scores: Tensor, visible: Tensor) -> State:
        return by_ratio(scores, visible)


class Boxcar(Bounded):
    """1 inside, 0 outside: the gradient of query and key is exactly 0."""

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        u = self.distance(query, keys)
        return (u <= 1.0).to(u.dtype)


class Triangular(Bounded):
    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        return (1.0 - self.distance(query, keys)).relu()


class Epanechnikov(Bounded):
    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        return (1.0 - self.distance(query, keys).square()).relu()


FAMILY: dict[str, type[Score]] = {
    "dot": Dot,
    "scaled-dot": ScaledDot,
    "bilinear": Bilinear,
    "additive": Additive,
    "gaussian": Gaussian,
    "boxcar": Boxcar,
    "triangular": Triangular,
    "epanechnikov": Epanechnikov,
}
SCORES = tuple(FAMILY)
KERNELS = tuple(name for name, kind in FAMILY.items() if issubclass(kind, Kernel))


def named_score(
    name: str, query_width: int, key_width: int | None = None, *, bandwidth: float = 1.0, width: int | None = None
) -> Score:
    """The score of that name for queries and keys of these widths; kernels have a bandwidth, the additive one a width
    of its own."""
    key_width = query_width if key_width is None else key_width
    kind = FAMILY[name]
    if issubclass(kind, Kernel):
        return kind(query_width, key_width, bandwidth)
    return kind(query_width, key_width, width) if issubclass(kind, Additive) else kind(query_width, key_width)
