"""Attention with a kernel that factorizes: it is a recurrent network whose state is a matrix.

    y_t = Σ_{j ≤ t} α(q_t, k_j) v_j / Σ_{j ≤ t} α(q_t, k_j),   α(q, k) = φ(q)·φ(k)       Katharopoulos et al. 2020

    S_t = λ_t S_{t-1} + φ(k_t) v_tᵀ      z_t = λ_t z_{t-1} + φ(k_t)      y_t = S_tᵀφ(q_t) / z_t·φ(q_t)

It is the same regression as Nadaraya's and Watson's, with a running sum stored instead of the words. One head has:

    φ       elu         elu(u) + 1                                         Katharopoulos et al. 2020
            relu        max(0, u)
            gaussian    exp(ωu − |u|²) / √m for m random ω ~ N(0, I)       so that E φ(q)·φ(k) = exp(−|q − k|²/2),
                                                                           the Gaussian kernel; Choromanski et al. 2021
    λ_t     none        1
            fixed       1 − 2^(−5−h) in head h                             RetNet: Sun et al. 2023
            gated       σ(w·x_t)^(1/16)                                    Yang et al. 2024, here one gate for each head
    rule    sum         as above
            delta       S_t = λ_t S_{t-1} + β_t φ(k_t) (v_t − λ_t S_{t-1}ᵀφ(k_t))ᵀ,  β_t = σ(u·x_t),  y_t = S_tᵀφ(q_t):
                        the key's old value is replaced. φ(q) and φ(k) then have length 1, and nothing is divided.
                        Schlag et al. 2021; with a gate: Yang et al. 2025

A text of T words is read in chunks of C, all at once: within a chunk by products of matrices, and S from chunk to chunk
by the scan of scan.py (under the delta rule one after the other). That costs O(T·C), and one word alone costs the same
at every t. With S_0 the state before a chunk, γ_t the product of the λ since its beginning, and u_t = v_t, or under the
delta rule what the equations below give,

    y_t = γ_t S_0ᵀφ(q_t) + Σ_{j ≤ t} (γ_t/γ_j) φ(q_t)·φ(k_j) u_j        S = γ_C S_0 + Σ_j (γ_C/γ_j) φ(k_j) u_jᵀ
    u_t + β_t Σ_{j < t} (γ_t/γ_j) φ(k_t)·φ(k_j) u_j = β_t (v_t − γ_t S_0ᵀφ(k_t))

All ratios are at most 1, so nothing overflows. Sums are made in fp32 or better.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.attention import CausalSelfAttention
from regard.layers.parts import note
from regard.layers.scan import scan
from regard.layers.state import Span, State

FEATURES = ("elu", "relu", "gaussian")
DECAYS = ("none", "fixed", "gated")
RULES = ("sum", "delta")
CHUNK = 64
TEMPERATURE = 16.0  # of the gate: initially it keeps 96 % of the state
MIN_NORMALIZER = 1e-6  # the smallest divisor: with relu, a query may match no key


class LinearAttention(CausalSelfAttention):
    """Causal attention in several heads; `features` is m, the number of random ω (0 = a head's width)."""

    caches = False
    exact = ("run", "exponent")
    directions: Tensor  # ω [H, d, m]

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        feature: str = "elu",
        features: int = 0,
        decay: str = "none",
        rule: str = "sum",
        bias: bool = True,
        dropout_output: float = 0.0,
    ) -> None:
        super().__init__(width, heads, bias=bias, dropout_output=dropout_output)
        self.feature, self.decay, self.rule = feature, decay, rule
        self.features = (features or width // heads) if feature == "gaussian" else width // heads
        if feature == "gaussian":
            self.register_buffer("directions", torch.randn(heads, width // heads, self.features))
        if decay == "gated":
            self.forget = nn.Linear(width, heads)
        if rule == "delta":
            self.write = nn.Linear(width, heads)

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        shape = (rows, self.heads, self.features, self.width // self.heads)
        exact = torch.promote_types(dtype, torch.float32)
        state: State = {"matrix": torch.zeros(shape, device=device, dtype=exact)}
        if self.rule == "sum":
            state["normaliser"] = torch.zeros(shape[:3], device=device, dtype=exact)
        return state

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        query, key, value, decay, write = self.prepare(x, span)
        read, matrix = self.run(query, key, value, decay, write, self.opened(state, query.dtype))
        return self.join_heads(self.divide(read).to(x.dtype)), self.closed(matrix)

    def run(self, *parts: Tensor | None) -> tuple[Tensor, Tensor]:
        return read_chunks(*parts)  # type: ignore[arg-type]  # of `prepare`, and the matrix before them

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        """The recurrent form, word by word."""
        query, key, value, decay, write = self.prepare(x, span)
        matrix = self.opened(state, query.dtype)
        context = []
        for t in range(x.size(1)):
            matrix = decay[:, :, t, None, None].exp() * matrix  # λ_t S_{t-1}
            new = value[:, :, t]
            if write is not None:
                new = write[:, :, t, None] * (new - (key[:, :, t, None] @ matrix)[:, :, 0])
            matrix = matrix + key[:, :, t, :, None] * new[:, :, None]  # + φ(k_t) v_tᵀ
            context.append((query[:, :, t, None] @ matrix)[:, :, 0])
        read = torch.stack(context, dim=2)
        parts: State = {
            "matrix": self.closed(matrix)["matrix"],
            "decay": decay.exp().transpose(1, 2),  # [R, T, H]
            "read": note("heads", self.divide(read)),  # the input of each head: [R, H, T, d]
        }
        if write is None:  # the weight of each word of this call; words of earlier calls are only in the state
            parts["weights"] = (
                remaining(decay.cumsum(dim=-1)) * (query @ key.mT) / read[..., -1:].clamp(min=MIN_NORMALIZER)
            )
        else:
            parts["write"] = write.transpose(1, 2)
        return self.join_heads(parts["read"].to(x.dtype)), self.closed(matrix), parts

    def prepare(self, x: Tensor, span: Span) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """φ(q), φ(k) [R, H, T, m], values [R, H, T, d], log λ and β [R, H, T]. A padded column writes nothing."""
        exact = torch.promote_types(x.dtype, torch.float32)
        query, key, value = (part.to(exact) for part in self.queries_keys_values(x, span.positions(x.size(1))))
        query, key = self.map_features(query, of_query=True), self.map_features(key)
        decay = self.log_decay(x).to(exact).expand(key.shape[:3])
        write = self.write(x).to(exact).sigmoid().transpose(1, 2) if self.rule == "delta" else None
        if write is None:
            value = F.pad(value, (0, 1), value=1.0)  # z is what values of 1 sum up to
        else:
            query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
        valid = span.valid(x.size(1))
        if valid is not None:
            key, decay = key * valid[:, None, :, None], decay * valid[:, None]
        return query, key, value, decay, write

    def map_features(self, vectors: Tensor, *, of_query: bool = False) -> Tensor:
        """φ of [R, H, T, d]: [R, H, T, m], nowhere below 0."""
        if self.feature == "elu":
            return F.elu(vectors) + 1
        if self.feature == "relu":
            return vectors.relu()
        vectors = vectors * vectors.size(-1) ** -0.25  # so that q·k is the scaled dot product
        power = self.exponent(vectors)
        if of_query:  # a factor of the query alone cancels out
            power = power - power.amax(dim=-1, keepdim=True).detach()
        return power.exp() * self.features**-0.5

    def exponent(self, vectors: Tensor) -> Tensor:
        """ωu − |u|² of [R, H, T, d]: [R, H, T, m]."""
        return vectors @ self.directions.to(vectors.dtype) - vectors.square().sum(dim=-1, keepdim=True)

    def log_decay(self, x: Tensor) -> Tensor:
        """log λ_t of each head: [R, H, T], or [H, 1] if it is the same for all words."""
        if self.decay == "gated":
            return F.logsigmoid(self.forget(x)).transpose(1, 2) / TEMPERATURE
        head = torch.arange(self.heads, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
        return (torch.log1p(-(2.0 ** (-5 - head))) if self.decay == "fixed" else torch.zeros_like(head))[:, None]

    def divide(self, read: Tensor) -> Tensor:
        return read if self.rule == "delta" else read[..., :-1] / read[..., -1:].clamp(min=MIN_NORMALIZER)

    def opened(self, state: State, dtype: torch.dtype) -> Tensor:
        """The state as one tensor [R, H, m, d], or [R, H, m, d + 1] with the normalizer last."""
        parts = [state["matrix"]] if self.rule == "delta" else [state["matrix"], state["normaliser"][..., None]]
        return torch.cat(parts, dim=-1).to(dtype)

    def closed(self, matrix: Tensor) -> State:
        if self.rule == "delta":
            return {"matrix": matrix}
        return {"matrix": matrix[..., :-1], "normaliser": matrix[..., -1]}


def remaining(reach: Tensor) -> Tensor:
    """γ_t/γ_j for j ≤ t, else 0, of log γ […, T]: […, T, T]."""
    later = torch.ones(reach.size(-1), reach.size(-1), dtype=torch.bool, device=reach.device).triu(1)
    return (reach[..., :, None] - reach[..., None, :]).masked_fill(later, -torch.inf).exp()


def cut(part: Tensor, size: int) -> Tensor:
    """[R, H, T, x] in chunks, the last one filled up with zeros, which write nothing: [R, N, H, size, x]."""
    return F.pad(part, (0, 0, 0, -part.size(2) % size)).unflatten(2, (-1, size)).transpose(1, 2)


def read_chunks(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, write: Tensor | None, matrix: Tensor
) -> tuple[Tensor, Tensor]:
    """The contexts [R, H, T, d] of T words, and the matrix after them; `write` is β under the delta rule."""
    words = query.size(2)
    size = min(CHUNK, words)
    query, key, value = (cut(part, size) for part in (query, key, value))
    reach = cut(decay[..., None], size).cumsum(dim=-2)  # log γ [R, N, H, C, 1]
    left, since_start, to_end = remaining(reach[..., 0]), reach.exp(), (reach[..., -1:, :] - reach).exp()
    stored, whole = (key * to_end).mT, since_start[..., -1:, :]  # φ(k) as the chunk's end sees it; γ_C
    if write is None:
        added = stored @ value  # [R, N, H, m, d]
        first = torch.addcmul(added[:, :1], whole[:, :1], matrix[:, None])
        after = scan(whole, torch.cat([first, added[:, 1:]], dim=1))
        before, matrix = torch.cat([matrix[:, None], after[:, :-1]], dim=1), after[:, -1]
    else:
        beta = cut(write[..., None], size)
        value = torch.cat([beta * value, beta * since_start * key], dim=-1)
        if size > 1:  # below its diagonal, the coefficients of the equations
            mixed = beta * left * (key @ key.mT)
            value = torch.linalg.solve_triangular(mixed, value, upper=False, unitriangular=True)
        alone, through = value.split([value.size(-1) - key.size(-1), key.size(-1)], dim=-1)  # u = alone − through S_0
        states, changes = [], []
        for own, past, kept, gamma in zip(*(part.unbind(1) for part in (alone, through, stored, whole)), strict=True):
            states.append(matrix)
            changes.append(own - past @ matrix)
            matrix = gamma * matrix + kept @ changes[-1]
        before, value = torch.stack(states, dim=1), torch.stack(changes, dim=1)
    read = since_start * (query @ before) + (left * (query @ key.mT)) @ value
    return read.transpose(1, 2).flatten(2, 3)[:, :, :words], matrix
