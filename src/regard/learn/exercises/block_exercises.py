"""Exercises on the parts around attention: positions, layer norm, the residual block; and on the plain average."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.laws.registry import Build
from regard.layers.attention import CausalSelfAttention
from regard.layers.blocks import FeedForward, PreNormBlock
from regard.layers.context import Average
from regard.layers.layer import Layer
from regard.layers.position import AtInput, Sinusoid
from regard.layers.state import Span, State
from regard.learn.exercises.grading import ExpectedOutput, Function, Grader, Mistake, RandomInputs
from regard.learn.exercises.small_models import WIDTH, model_of

VECTORS = ("row", "position", "component")


def _block() -> PreNormBlock:
    return PreNormBlock(CausalSelfAttention(WIDTH, 2), FeedForward(WIDTH, 2 * WIDTH))


# -- sinusoids ---------------------------------------------------------------------------------------------------------


def _places(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for pairs in (2, random.whole(3, 4), random.whole(5, 8)):
        yield random.tokens(50, random.whole(4, 6)), 2 * pairs


def _waves(make: Function = lambda sin, cos: torch.stack([sin, cos], -1).flatten(-2), **changes: Any) -> Function:
    """A wrong vector: of sines and cosines of other angles, or put together in another way."""

    def answer(positions: Tensor, width: int) -> Tensor:
        n = width // 2
        t = positions.double() + changes.get("first", 0)
        frequency = changes.get("base", 10000.0) ** (-torch.arange(n).double() / (n * changes.get("stretch", 1)))
        angle = t[:, None] * frequency
        return make(angle.sin(), angle.cos())

    return answer


class AskedPosition(AtInput):
    def __init__(self, function: Function) -> None:
        super().__init__(WIDTH)
        self.function = function

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return self.function(positions.flatten(), WIDTH).view(*positions.shape, WIDTH).to(dtype)


def _position_model(function: Function) -> Build:
    return model_of(_block, lambda: AskedPosition(function))


sinusoid_positions = Grader(
    own="layers/position.py: Sinusoid",
    cases=_places,
    answer=lambda positions, width: Sinusoid(width)(positions[None], torch.float64)[0],
    outputs=(ExpectedOutput("the vector", ("place", "component")),),
    mistakes=(
        Mistake("all sines come before all cosines: the sine and cosine of a frequency must be adjacent",
                _waves(lambda sin, cos: torch.cat([sin, cos], -1))),
        Mistake("sine and cosine are swapped: the even components are sines",
                _waves(lambda sin, cos: torch.stack([cos, sin], -1).flatten(-2))),
        Mistake("the frequencies fall too slowly: the exponent is −k/n with n = width/2, not −k/width",
                _waves(stretch=2)),
        Mistake("the frequencies grow: the minus of the exponent is missing", _waves(base=1 / 10000.0)),
        Mistake("positions are counted from 1: use them as they are given", _waves(first=1)),
        Mistake("the positions that are given are not used: they need not be 0, 1, 2, …",
                lambda positions, width: _waves()(torch.arange(len(positions)), width)),
        Mistake("the cosines are missing: both components are sines",
                _waves(lambda sin, cos: torch.stack([sin, sin], -1).flatten(-2))),
        Mistake("the exponent of component 2k is −2k/n: it grows twice as fast as it should", _waves(stretch=0.5)),
    ),
    model=_position_model,
    laws=(1, 2, 3),
)  # fmt: skip


# -- layer norm --------------------------------------------------------------------------------------------------------


def _activations(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for epsilon in (1e-5, 0.1, 0.01):
        rows, columns, width = random.distinct(3, 2, 6)
        yield 2 * random.normal(rows, columns, width) + 1, random.normal(width), random.normal(width), epsilon


def _normalised(
    axis: int = -1, *, centred: bool = True, unbiased: bool = False, root: bool = True, inside: bool = True,
    gained: bool = True, shifted: bool = True,
) -> Function:  # fmt: skip
    def answer(x: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        middle = x - x.mean(axis, keepdim=True) if centred else x
        spread = middle.square().sum(axis, keepdim=True) / (x.size(axis) - unbiased)
        scale = (spread + epsilon).sqrt() if inside else spread.sqrt() + epsilon
        y = middle / (scale if root else spread + epsilon)
        return (y * gain if gained else y) + (bias if shifted else 0)

    return answer


class AskedNorm(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.gain, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.gain, self.bias, 1e-5)


def _norm_model(function: Function) -> Build:
    def layer() -> Layer:
        block = _block()
        for name in ("attention_norm", "feedforward_norm"):
            setattr(block, name, AskedNorm(function))
        return block

    return model_of(layer)


layer_norm = Grader(
    own="layers/blocks.py: Block.norm, which is torch.nn.LayerNorm",
    cases=_activations,
    answer=lambda x, gain, bias, epsilon: F.layer_norm(x, gain.shape, gain, bias, epsilon),
    outputs=(ExpectedOutput("the result", VECTORS),),
    mistakes=(
        Mistake("mean and variance go over the positions, and so leak the future: take each vector's own (dim=-1)",
                _normalised(1)),
        Mistake("mean and variance go over the rows of the batch: take each vector's own (dim=-1)", _normalised(0)),
        Mistake("the variance is divided by D − 1: pass unbiased=False, or correction=0", _normalised(unbiased=True)),
        Mistake("you divided by the variance, not by its square root", _normalised(root=False)),
        Mistake("ε is added after the square root, but belongs under it", _normalised(inside=False)),
        Mistake("ε is added after the square root, and the variance is divided by D − 1",
                _normalised(inside=False, unbiased=True)),
        Mistake("the mean is not subtracted: that is RMSNorm", _normalised(centred=False)),
        Mistake("the bias is missing", _normalised(shifted=False)),
        Mistake("the gain is missing", _normalised(gained=False)),
        Mistake("gain and bias are missing", _normalised(gained=False, shifted=False)),
    ),
    model=_norm_model,
    laws=(1, 2, 3),
)  # fmt: skip


# -- the residual block ------------------------------------------------------------------------------------------------


def _sublayers(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for _ in range(3):
        rows, columns, width = random.distinct(3, 2, 6)
        mix, expand, gain, other = (random.normal(width, width) for _ in range(4))

        def attention(x: Tensor, mix: Tensor = mix) -> Tensor:
            return (x @ mix).cumsum(1) / torch.arange(1, x.size(1) + 1)[:, None]

        def feedforward(x: Tensor, expand: Tensor = expand) -> Tensor:
            return (x @ expand).tanh()

        def norm_1(x: Tensor, gain: Tensor = gain[0]) -> Tensor:
            return F.layer_norm(x, gain.shape, gain)

        def norm_2(x: Tensor, gain: Tensor = other[0]) -> Tensor:
            return F.layer_norm(x, gain.shape, gain)

        yield 2 * random.normal(rows, columns, width), attention, feedforward, norm_1, norm_2


def _pre_norm(x: Tensor, attention: Function, feedforward: Function, norm_1: Any, norm_2: Any) -> Tensor:
    x = x + attention(norm_1(x))
    return x + feedforward(norm_2(x))


def _in_turn(rule: Function) -> Function:
    """Both sublayers by one wrong rule: the new x from x, the sublayer and its norm."""
    return lambda x, A, F, n1, n2: rule(rule(x, A, n1), F, n2)


class AskedBlock(Layer):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function, self.block, self.caches = function, _block(), True

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return self.block.begin(rows, capacity=capacity, device=device, dtype=dtype)

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        kept: list[State] = []

        def attention(read: Tensor) -> Tensor:
            y, new = self.block.attention(read, state, span)
            kept.append(new)
            return y

        block = self.block
        y = self.function(x, attention, block.feedforward, block.attention_norm, block.feedforward_norm)
        return y, kept[-1]


def _block_model(function: Function) -> Build:
    return model_of(lambda: AskedBlock(function))


residual_block = Grader(
    own="layers/blocks.py: PreNormBlock.forward",
    cases=_sublayers,
    answer=_pre_norm,
    outputs=(ExpectedOutput("the output", VECTORS),),
    mistakes=(
        Mistake("x is not added: each sublayer replaces it", _in_turn(lambda x, part, norm: part(norm(x)))),
        Mistake("this is post-norm, LN(x + f(x)), as in the first Transformer: here the norm comes before the sublayer",
                _in_turn(lambda x, part, norm: norm(x + part(x)))),
        Mistake("the sublayer's output is added to LN(x), but must be added to x as it is",
                _in_turn(lambda x, part, norm: norm(x) + part(norm(x)))),
        Mistake("there is no norm: the sublayers read x as it is", _in_turn(lambda x, part, norm: x + part(x))),
        Mistake("the feed-forward reads and adds to the x from before attention, whose output is lost",
                lambda x, A, F, n1, n2: x + F(n2(x))),
        Mistake("both sublayers read the x from before attention: the second one must read the new x",
                lambda x, A, F, n1, n2: x + A(n1(x)) + F(n2(x))),
        Mistake("norm_1 is used twice: the second sublayer has its own norm",
                lambda x, A, F, n1, n2: (y := x + A(n1(x))) + F(n1(y))),
        Mistake("the norms are swapped", lambda x, A, F, n1, n2: (y := x + A(n2(x))) + F(n1(y))),
        Mistake("the feed-forward comes before attention", lambda x, A, F, n1, n2: (y := x + F(n2(x))) + A(n1(y))),
        Mistake("the second sum is missing: the feed-forward's output replaces x",
                lambda x, A, F, n1, n2: F(n2(x + A(n1(x))))),
    ),
    model=_block_model,
    laws=(1, 2, 3),
)  # fmt: skip


# -- the average -------------------------------------------------------------------------------------------------------


def _texts(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for _ in range(3):
        rows, columns, width = random.distinct(3, 2, 7)
        yield (random.normal(rows, columns, width),)


def _counts(x: Tensor) -> Tensor:
    return torch.arange(1, x.size(1) + 1)[:, None]


def _average(x: Tensor) -> Tensor:
    layer = Average(x.size(-1))
    state = layer.begin(len(x), device="cpu", dtype=x.dtype)
    return layer(x, state, Span(torch.zeros(len(x), dtype=torch.int64)))[0]


class AskedAverage(Layer):
    """Rereads all words so far in every call, because the function has no state."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        return {"words": torch.zeros(rows, 0, WIDTH, device=device, dtype=dtype)}

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        words = torch.cat([state["words"], x], dim=1)
        return self.function(words)[:, -x.size(1) :], {"words": words}


def _average_model(function: Function) -> Build:
    return model_of(lambda: AskedAverage(function))


word_average = Grader(
    own="layers/context.py: Average",
    cases=_texts,
    answer=_average,
    outputs=(ExpectedOutput("the average", VECTORS),),
    mistakes=(
        Mistake("every position averages the whole text, and so sees the future",
                lambda x: x.mean(1, keepdim=True).expand_as(x)),
        Mistake("the sums are divided by the length of the whole text, not by the number of words so far",
                lambda x: x.cumsum(1) / x.size(1)),
        Mistake("the sums are not divided", lambda x: x.cumsum(1)),
        Mistake("the word itself is left out: position t averages the words before it",
                lambda x: (x.cumsum(1) - x) / _counts(x)),
        Mistake("the sums are divided by t counted from 0, which is one word too few",
                lambda x: x.cumsum(1) / (_counts(x) - 1)),
        Mistake("the sums are divided by one word too many", lambda x: x.cumsum(1) / (_counts(x) + 1)),
        Mistake("the sum runs over the rows of the batch not over the positions",
                lambda x: x.cumsum(0) / _counts(x)),
        Mistake("the average runs over the components of each word, but must run over the words",
                lambda x: x.cumsum(2) / torch.arange(1, x.size(2) + 1)),
    ),
    model=_average_model,
    laws=(1, 2),
)  # fmt: skip

GRADERS = {
    "sinusoid-positions": sinusoid_positions,
    "layer-norm": layer_norm,
    "residual-block": residual_block,
    "word-average": word_average,
}
