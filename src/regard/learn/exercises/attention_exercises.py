"""Exercises on attention: the mask, the scaled dot product, heads, Bahdanau's score, kernels, the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from regard.laws.registry import Build
from regard.layers.attention import additive_mask, attention_reference
from regard.layers.cache import visible
from regard.layers.layer import Layer
from regard.layers.state import Span, State
from regard.learn.exercises.grading import ExpectedOutput, Function, Grader, Mistake, RandomInputs
from regard.learn.exercises.small_models import WIDTH, model_of
from regard.pooling import attention

# -- layers around the function that is graded -------------------------------------------------------------------------


class AskedAttention(Layer):
    """One head that remembers keys and values; a subclass defines how the function is called."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return {name: torch.zeros(rows, 0, WIDTH, device=device, dtype=dtype) for name in ("keys", "values")}

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        query, key, value = self.query(x), self.key(x), self.value(x)
        keys = torch.cat([state["keys"], key], dim=1)
        values = torch.cat([state["values"], value], dim=1)
        seen = visible(span.positions(x.size(1)), keys.size(1))[0, 0]  # [T, S]; no law here has ragged rows
        return self.ask(query, keys, values, seen), {"keys": keys, "values": values}

    def ask(self, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        return self.function(query, keys, values, seen)


class AskedMask(AskedAttention):
    def ask(self, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        mask = self.function(keys.size(1))[-query.size(1) :]
        return attention_reference(query, keys, values, additive_mask(mask, None, query.dtype))[0]


class AskedHeads(AskedAttention):
    def ask(self, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        return self.function(query, keys, values, 2)


class AskedSteps(AskedAttention):
    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        outputs, keys, values = [], state["keys"], state["values"]
        for word in x.unbind(1):
            output, keys, values = self.function(self.query(word), self.key(word), self.value(word), keys, values)
            outputs.append(output)
        return torch.stack(outputs, dim=1), {"keys": keys, "values": values}


def _layer(kind: type[AskedAttention]) -> Any:
    def model(function: Function) -> Build:
        return model_of(lambda: kind(function))

    return model


# -- the causal mask ---------------------------------------------------------------------------------------------------


def _square(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool)


causal_mask = Grader(
    own="layers/cache.py: visible",
    cases=lambda random: [(length,) for length in (3, 1, random.whole(4, 9), random.whole(10, 20))],
    answer=lambda length: visible(torch.arange(length)[None], length)[0, 0],
    outputs=(ExpectedOutput("the mask", ("query", "key")),),
    mistakes=(
        Mistake("the mask hides the diagonal, so that a position cannot see itself", lambda n: _square(n).tril(-1)),
        Mistake("the mask shows the next word: it reaches one position too far", lambda n: _square(n).tril(1)),
        Mistake("the mask shows the future and hides the past: rows are queries, columns are keys",
                lambda n: _square(n).triu()),
        Mistake("the mask is True where a key is hidden, but must be True where it may be seen",
                lambda n: _square(n).triu(1)),
        Mistake("the mask hides nothing", _square),
        Mistake("these are numbers to add to the scores, 0 and −∞; the mask must be True or False",
                lambda n: torch.zeros(n, n).masked_fill(_square(n).triu(1), -torch.inf)),
        Mistake("these are 1 and 0; the mask must be True or False", lambda n: torch.ones(n, n).tril()),
        Mistake("a position sees only itself", lambda n: torch.eye(n, dtype=torch.bool)),
    ),
    model=_layer(AskedMask),
    laws=(1, 2),
    differentiable=False,
)  # fmt: skip


# -- scaled dot product ------------------------------------------------------------------------------------------------


def _database(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for _ in range(4):
        rows, queries, keys, width, values = random.distinct(5, 2, 7)
        mask = random.normal(queries, keys) > -0.4
        mask[:, random.whole(0, keys - 1)] = True  # every query sees a key
        mask[0, :2] = torch.tensor([True, False])
        yield (
            2 * random.normal(rows, queries, width),
            random.normal(rows, keys, width),
            random.normal(rows, keys, values),
            mask,
        )


def _scored(scale: Function = lambda q, k: q.size(-1) ** 0.5, hidden: float = -torch.inf, dim: int = -1) -> Function:
    def answer(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = (q @ k.transpose(-2, -1) / scale(q, k)).masked_fill(~mask, hidden)
        return scores.softmax(dim=dim) @ v

    return answer


def _masked_late(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).softmax(-1).masked_fill(~mask, 0.0) @ v


scaled_dot_product = Grader(
    own="layers/attention.py: attention_reference",
    cases=_database,
    answer=lambda q, k, v, mask: attention_reference(q, k, v, additive_mask(mask, None, q.dtype))[0],
    outputs=(ExpectedOutput("the output", ("row", "query", "component")),),
    mistakes=(
        Mistake("you divided by d, not √d", _scored(lambda q, k: q.size(-1))),
        Mistake("the scores are not divided by √d", _scored(lambda q, k: 1.0)),
        Mistake("the scores are multiplied by √d instead of divided", _scored(lambda q, k: q.size(-1) ** -0.5)),
        Mistake("you divided by √S, the number of keys, not by √d", _scored(lambda q, k: k.size(-2) ** 0.5)),
        Mistake("the softmax runs over the queries, but must run over the keys (dim=-1)", _scored(dim=-2)),
        Mistake("hidden keys get the score 0, which is an ordinary score: it must be −∞", _scored(hidden=0.0)),
        Mistake("the mask comes after the softmax, so that the weights no longer sum to 1", _masked_late),
        Mistake("the mask is not used", lambda q, k, v, mask: _scored()(q, k, v, torch.ones_like(mask))),
        Mistake("the mask is used the wrong way round: True means that a key may be seen",
                lambda q, k, v, mask: _scored()(q, k, v, ~mask)),
        Mistake("the softmax is missing: the scores themselves are the weights",
                lambda q, k, v, mask: (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).masked_fill(~mask, 0.0) @ v),
    ),
    model=_layer(AskedAttention),
    laws=(1, 2),
)  # fmt: skip


# -- heads -------------------------------------------------------------------------------------------------------------


def _vectors(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for _ in range(4):
        rows, columns, heads, width = random.distinct(4, 2, 5)
        yield *(2 * random.normal(rows, columns, heads * width) for _ in range(3)), heads


def _causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    seen = visible(torch.arange(query.size(-2))[None], key.size(-2))[0]
    return attention_reference(query, key, value, additive_mask(seen, None, query.dtype))[0]


def _multi_head(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # as MultiHeadSelfAttention.queries_keys_values

    return _causal(split(query), split(key), split(value)).transpose(1, 2).flatten(2)  # as join_heads


def _heads_by(split: Function, merge: Function) -> Function:
    def answer(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
        return merge(_causal(*(split(x, heads) for x in (query, key, value))), query)

    return answer


def _cut(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _joined(context: Tensor, x: Tensor) -> Tensor:
    return context.transpose(1, 2).reshape(x.shape)


multi_head = Grader(
    own="layers/attention.py: MultiHeadSelfAttention",
    cases=_vectors,
    answer=_multi_head,
    outputs=(ExpectedOutput("the output", ("row", "position", "component")),),
    mistakes=(
        Mistake("the heads are split by view(R, H, T, d) alone, which mixes positions: view as [R, T, H, d] first",
                _heads_by(lambda x, h: x.reshape(x.size(0), h, x.size(1), -1), _joined)),
        Mistake("the heads are split and joined by view alone, which mixes positions: view as [R, T, H, d] first",
                _heads_by(lambda x, h: x.reshape(x.size(0), h, x.size(1), -1), lambda y, x: y.reshape(x.shape))),
        Mistake("the heads are joined without exchanging H and T back, which mixes positions",
                _heads_by(_cut, lambda y, x: y.reshape(x.shape))),
        Mistake("the heads are interleaved: head 1 must have the first D / H components, not every H-th",
                _heads_by(lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2),
                          lambda y, x: y.permute(0, 2, 3, 1).reshape(x.shape))),
        Mistake("there is one head of width D: the components are not split", lambda q, k, v, heads: _causal(q, k, v)),
        Mistake("the heads attend to each other, and the positions do not: attention runs over the axis of heads",
                _heads_by(lambda x, h: x.unflatten(-1, (h, -1)), lambda y, x: y.reshape(x.shape))),
    ),
    model=_layer(AskedHeads),
    laws=(2,),
)  # fmt: skip


# -- Bahdanau ----------------------------------------------------------------------------------------------------------


def _source(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for _ in range(4):
        rows, words, query, memory, width = random.distinct(5, 2, 7)
        yield (
            random.normal(rows, query),
            random.normal(rows, words, memory),
            random.normal(width, query),
            random.normal(width, memory),
            2 * random.normal(width),
        )


def _additive(query: Tensor, memory: Tensor, W_q: Tensor, W_k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    attended = attention(query[:, None], memory, memory, score="additive", W_q=W_q, W_k=W_k, v=v)
    return attended.output[:, 0], attended.weights[:, 0]


def _scored_by(score: Function, weigh: Function = lambda s: s.softmax(-1)) -> Function:
    def answer(query: Tensor, memory: Tensor, W_q: Tensor, W_k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = weigh(score((query @ W_q.T)[:, None], memory @ W_k.T, v))
        return (weights[..., None] * memory).sum(1), weights

    return answer


additive_score = Grader(
    own="layers/scores.py: Additive",
    cases=_source,
    answer=_additive,
    outputs=(
        ExpectedOutput("the context", ("row", "component")),
        ExpectedOutput("the weights", ("row", "source word")),
    ),
    mistakes=(
        Mistake("the tanh is missing, and without it the query changes nothing: it adds the same to every score",
                _scored_by(lambda q, k, v: (q + k) @ v)),
        Mistake("the tanh is taken of the score, not of W_q q + W_k h before v",
                _scored_by(lambda q, k, v: ((q + k) @ v).tanh())),
        Mistake("the query changes nothing: it is left out, or the tanh is taken of each part and not of their sum",
                _scored_by(lambda q, k, v: (q.tanh() + k.tanh()) @ v)),
        Mistake("the softmax runs over the rows of the batch, but must run over the source's words",
                _scored_by(lambda q, k, v: (q + k).tanh() @ v, lambda s: s.softmax(0))),
        Mistake("the softmax is missing: the weights do not sum to 1",
                _scored_by(lambda q, k, v: (q + k).tanh() @ v, lambda s: s)),
        Mistake("context and weights are returned in the wrong order", lambda *given: _additive(*given)[::-1]),
        Mistake("v is missing: the components of the tanh are summed up",
                _scored_by(lambda q, k, v: (q + k).tanh().sum(-1))),
    ),
)  # fmt: skip


# -- kernel regression -------------------------------------------------------------------------------------------------


def _points(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for bandwidth in (1.0, random.uniform(0.2, 0.6), random.uniform(1.5, 3.0)):
        queries, keys = random.distinct(2, 3, 8)
        yield random.normal(queries), random.normal(keys), random.normal(keys), bandwidth


def _kernel(weight: Function, total: Function = lambda w: w.sum(-1, keepdim=True)) -> Function:
    def answer(query: Tensor, keys: Tensor, values: Tensor, bandwidth: float) -> Tensor:
        weights = weight((query[:, None] - keys).abs(), bandwidth)
        return (weights / total(weights)) @ values

    return answer


kernel_regression = Grader(
    own="layers/scores.py: Gaussian",
    cases=_points,
    answer=lambda query, keys, values, bandwidth: attention(
        query, keys, values, score="gaussian", bandwidth=bandwidth
    ).output,
    outputs=(ExpectedOutput("the prediction", ("query",)),),
    mistakes=(
        Mistake("the bandwidth is not used", _kernel(lambda r, h: (-0.5 * r**2).exp())),
        Mistake("the distance is divided by h after it was squared: u = |q − k| / h comes first",
                _kernel(lambda r, h: (-0.5 * r**2 / h).exp())),
        Mistake("the ½ of the kernel is missing", _kernel(lambda r, h: (-((r / h) ** 2)).exp())),
        Mistake("the distance is not squared", _kernel(lambda r, h: (-0.5 * r / h).exp())),
        Mistake("the weights are not divided by their sum",
                _kernel(lambda r, h: (-0.5 * (r / h) ** 2).exp(), lambda w: 1.0)),
        Mistake("the weights are divided by the number of points, not by their sum",
                _kernel(lambda r, h: (-0.5 * (r / h) ** 2).exp(), lambda w: w.size(-1))),
        Mistake("the weights are normalized over the queries, but must be over the known points",
                _kernel(lambda r, h: (-0.5 * (r / h) ** 2).exp(), lambda w: w.sum(0, keepdim=True))),
        Mistake("the minus is missing: far points count more", _kernel(lambda r, h: (0.5 * (r / h) ** 2).exp())),
    ),
)  # fmt: skip


# -- the cache ---------------------------------------------------------------------------------------------------------


def _words(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for before in (3, 0, random.whole(4, 6)):
        rows, width = random.distinct(2, 2, 7)
        vectors = (2 * random.normal(rows, width), random.normal(rows, width), random.normal(rows, width))
        yield *vectors, random.normal(rows, before, width), random.normal(rows, before, width)


def _longer(cache: Tensor, new: Tensor) -> Tensor:
    return torch.cat([cache, new[:, None]], dim=1)


def _looked(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    return ((query[:, None] @ keys.transpose(1, 2) / scale).softmax(-1) @ values)[:, 0]


def _cached(query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    keys, values = _longer(keys, key), _longer(values, value)
    return attention_reference(query[:, None], keys, values, None)[0][:, 0], keys, values


cached_attention = Grader(
    own="layers/attention.py: CausalSelfAttention, layers/cache.py: remember",
    cases=_words,
    answer=_cached,
    outputs=(
        ExpectedOutput("the output", ("row", "component")),
        ExpectedOutput("the cache of keys", ("row", "word", "component")),
        ExpectedOutput("the cache of values", ("row", "word", "component")),
    ),
    mistakes=(
        Mistake("the word cannot attend to itself: its key and value join the cache only after attention",
                lambda q, k, v, K, V: (_looked(q, K, V, q.size(-1) ** 0.5), _longer(K, k), _longer(V, v))),
        Mistake("the cache is returned unchanged: the new key and value are not stored",
                lambda q, k, v, K, V: (_looked(q, _longer(K, k), _longer(V, v), q.size(-1) ** 0.5), K, V)),
        Mistake("the new word is put before the old ones: the cache is oldest first",
                lambda q, k, v, K, V: (
                    _cached(q, k, v, K, V)[0], torch.cat([k[:, None], K], 1), torch.cat([v[:, None], V], 1)
                )),
        Mistake("the scores are not divided by √d",
                lambda q, k, v, K, V: (
                    _looked(q, _longer(K, k), _longer(V, v), 1.0), _longer(K, k), _longer(V, v)
                )),
        Mistake("keys and values are swapped in the cache",
                lambda q, k, v, K, V: (_cached(q, k, v, K, V)[0], _longer(V, v), _longer(K, k))),
    ),
    model=_layer(AskedSteps),
    laws=(1, 2, 8),
)  # fmt: skip

GRADERS = {
    "causal-mask": causal_mask,
    "scaled-dot-product": scaled_dot_product,
    "multi-head": multi_head,
    "additive-score": additive_score,
    "kernel-regression": kernel_regression,
    "cached-attention": cached_attention,
}
