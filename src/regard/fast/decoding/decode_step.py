"""One decoding step of a GPT in a few fused kernels: logits, state = model(token, state).

    x = E[w] + p_t;   in each block   qkv = W LN(x),   h = attention(qkv, cache),   x = x + W_o h,
                                      u = f(W_1 LN(x)),   x = x + W_2 u;            logits = E LN(x)

With few rows each of these is one kernel. With more rows, products use tensor cores, and those that are added to x use
split-K: another kernel adds up the partial sums and normalizes. The reference is the model's own call. The kernels,
and why they are few: fast/kernels/decode.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.decoding.writer import DecodingStep
from regard.fast.decoding.lean_step import is_usual
from regard.fast.table import Row, Use, Why, has_triton, needs_triton
from regard.layers.attention import CausalSelfAttention
from regard.layers.blocks import PreNormBlock
from regard.layers.embedding import Embedding, Output
from regard.layers.position import Learned, Position, Rotary
from regard.layers.state import State

FEW = 3  # with at most this many rows, a product is bound by reading W
WIDEST = 8192  # the most components of a row of W that a warp can hold
INTERPRETED = False  # for tests: run the kernels on a CPU (TRITON_INTERPRET=1)


def is_known(model: nn.Module) -> bool:
    """True for an embedding, pre-norm blocks and an output layer, in one precision, on a GPU with Triton."""
    embedding, output = getattr(model, "embedding", None), getattr(model, "output", None)
    blocks, finish = getattr(model, "layers", None), getattr(model, "finish", None)
    if not isinstance(embedding, Embedding) or not isinstance(output, Output) or not isinstance(blocks, nn.ModuleList):
        return False
    return (
        _placed(model)
        and not model.training
        and not torch.is_autocast_enabled("cuda")
        and len(blocks) > 0
        and all(type(block) is PreNormBlock for block in blocks)
        and all(type(block.attention) is CausalSelfAttention for block in blocks)
        and all(type(block.attention.position) in (Position, Rotary) for block in blocks)  # type: ignore[union-attr, operator]
        and isinstance(finish, nn.LayerNorm)
        and not embedding.concatenate
        and (embedding.position is None or isinstance(embedding.position, Learned))
        and output.bias is None
    )


def _placed(model: nn.Module) -> bool:
    weights = list(model.parameters())
    one = {(weight.device, weight.dtype) for weight in weights}
    if len(one) != 1 or weights[0].dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return False
    ours = weights[0].is_cuda and torch.version.cuda is not None  # ROCm devices are called cuda, too
    ready = ours and torch.cuda.get_device_capability(weights[0].device) >= (8, 0)
    return (ready or INTERPRETED) and has_triton()


def power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def parts_of(number: int, size: int) -> int:
    return -(-number // size)


def few_rows_tile(rows: int, columns: int, inner: int) -> tuple[int, int]:
    """Few rows: warps per program, and rows of W per warp; found by measurement."""
    if inner > 2048:
        return 4, 1
    return 4, 4 if rows == 1 and columns > 2048 else 2


def many_rows_tile(columns: int, inner: int) -> tuple[int, int, int, int]:
    """Many rows: columns and inner components of a tile, warps, stages; found by measurement."""
    if columns > 16384:
        return 64, 64, 4, 4
    return 32, 128, 4, 6


def split_k_tile(columns: int, inner: int, itemsize: int) -> tuple[int, int]:
    """Split-K: columns and inner components of a program; found by measurement."""
    size = 64 if itemsize == 4 else 256 if columns * inner > 2**20 else 128  # full fp32 has no tensor cores
    return 64, min(size, max(16, power_of_two(inner)))


def attention_tile(programs: int, slots: int) -> tuple[int, int]:
    """Attention: keys per group of lanes at a time, and warps; found by measurement."""
    if programs >= 512:  # several for every multiprocessor
        return 4, 2
    return (4, 4) if programs >= 128 or slots <= 384 else (8, 8)


class DecodeStep:
    """The step of one model. It reads the model's own parameters, so later changes to them take effect."""

    def __init__(self, model: Any) -> None:
        from regard.fast.kernels import decode

        self.model = model
        self.kernels = decode
        weight = model.embedding.table.weight
        # From Hopper on a kernel may start before the previous one ends (programmatic dependent launch).
        self.early = weight.is_cuda and torch.cuda.get_device_capability(weight.device) >= (9, 0)
        self.launch: dict[str, Any] = {"launch_pdl": True} if self.early else {}
        # Shared memory per program in bytes; about 100 kB on the smallest device.
        card = torch.cuda.get_device_properties(weight.device) if weight.is_cuda else None
        self.memory = getattr(card, "shared_memory_per_block_optin", 99 * 1024)
        widest = max(linear.in_features for linear in model.modules() if isinstance(linear, nn.Linear))
        self.few = FEW if widest <= WIDEST else 0

    @torch.no_grad()
    def __call__(self, tokens: Tensor, state: State) -> Tensor:
        return (self._few_rows if len(tokens) <= self.few else self._many_rows)(tokens, state)

    def _few_rows(self, tokens: Tensor, state: State) -> Tensor:
        seen = state["seen"]
        x, _ = self._embed(tokens, seen)
        for name, block in self.model.layers.named_children():
            attention, feedforward = block.attention, block.feedforward
            qkv = self._few(x, attention.project, norm=block.attention_norm)
            context = self._attend(qkv[None], None, state["past"][name], seen, attention)
            x = self._few(context, attention.output, residual=x)
            inner = self._few(x, feedforward.expand, norm=block.feedforward_norm, activation=_name(feedforward))
            x = self._few(inner, feedforward.output, residual=x)
        return self._few(x, self._output(), norm=self.model.finish, advance=seen)

    def _many_rows(self, tokens: Tensor, state: State) -> Tensor:
        seen = state["seen"]
        blocks = list(self.model.layers.named_children())
        norms = [*(block.attention_norm for _, block in blocks), self.model.finish]
        x, normed = self._embed(tokens, seen, norms[0])
        for (name, block), following in zip(blocks, norms[1:]):
            attention, feedforward = block.attention, block.feedforward
            qkv = self._split_k(normed, attention.project)
            context = self._attend(qkv, attention.project.bias, state["past"][name], seen, attention)
            partial = self._split_k(context, attention.output)
            x, normed = self._add_norm(x, partial, attention.output, block.feedforward_norm)
            inner = self._many(normed, feedforward.expand, activation=_name(feedforward))
            partial = self._split_k(inner, feedforward.output)
            x, normed = self._add_norm(x, partial, feedforward.output, following)
        return self._many(normed, self._output(), advance=seen)

    def _output(self) -> Any:
        return self.model.embedding.table if self.model.output.weight is None else self.model.output

    def _embed(self, tokens: Tensor, seen: Tensor, norm: nn.LayerNorm | None = None) -> tuple[Tensor, Tensor]:
        """x [R, D], and LN(x) where a norm is given."""
        embedding = self.model.embedding
        words = embedding.table.weight
        places = words if embedding.position is None else embedding.position.table.weight
        x = words.new_empty(len(tokens), embedding.width)
        normed = x if norm is None else torch.empty_like(x)
        # The first kernel of a step must wait for all previous work: no early launch.
        self.kernels.embed[(len(tokens),)](
            tokens,
            seen,
            words,
            places,
            *_affine(norm, x),
            x,
            normed,
            embedding.scale,
            len(places) - 1,
            0.0 if norm is None else norm.eps,
            WIDTH=embedding.width,
            BLOCK=power_of_two(embedding.width),
            PLACES=embedding.position is not None,
            NORM=norm is not None,
            SHIFT=norm is not None and norm.bias is not None,
            EARLY=self.early,
        )
        return x, normed

    def _few(
        self,
        x: Tensor,
        linear: Any,
        *,
        norm: nn.LayerNorm | None = None,
        activation: str = "none",
        residual: Tensor | None = None,
        advance: Tensor | None = None,
    ) -> Tensor:
        """f(W LN(x) + b) + residual; with `advance`, every row's `seen` grows by one."""
        weight, bias = linear.weight, getattr(linear, "bias", None)
        rows, (columns, inner) = len(x), weight.shape
        warps, each = few_rows_tile(rows, columns, inner)
        y = x.new_empty(rows, columns)
        self.kernels.product_of_few_rows[(parts_of(columns, warps * each),)](
            x,
            *_affine(norm, x),
            weight,
            x if bias is None else bias,
            x if residual is None else residual,
            y,
            x if advance is None else advance,
            columns,
            0.0 if norm is None else norm.eps,
            INNER=inner,
            BLOCK_INNER=max(512 // weight.element_size(), power_of_two(inner)),
            WARPS=warps,
            EACH=each,
            ROWS=rows,
            NORM=norm is not None,
            SHIFT=norm is not None and norm.bias is not None,
            BIAS=bias is not None,
            ACTIVATION=activation,
            RESIDUAL=residual is not None,
            ADVANCE=advance is not None,
            EARLY=self.early,
            num_warps=warps,
            **self.launch,
        )
        return y

    def _many(self, x: Tensor, linear: Any, *, activation: str = "none", advance: Tensor | None = None) -> Tensor:
        """f(W x + b); with `advance`, every row's `seen` grows by one."""
        weight, bias = linear.weight, getattr(linear, "bias", None)
        rows, (columns, inner) = len(x), weight.shape
        block, inner_block, warps, stages = many_rows_tile(columns, inner)
        row_block = min(64, max(16, power_of_two(rows)))
        stages = max(1, min(stages, self.memory // ((row_block + block) * inner_block * x.element_size())))
        y = x.new_empty(rows, columns)
        self.kernels.product_of_many_rows[(parts_of(columns, block), parts_of(rows, row_block))](
            x,
            weight,
            x if bias is None else bias,
            y,
            x if advance is None else advance,
            rows,
            columns,
            INNER=inner,
            BLOCK_INNER=inner_block,
            BLOCK=block,
            ROWS=row_block,
            BIAS=bias is not None,
            ACTIVATION=activation,
            ADVANCE=advance is not None,
            EARLY=self.early,
            num_warps=warps,
            num_stages=stages,
            **self.launch,
        )
        return y

    def _split_k(self, x: Tensor, linear: nn.Linear) -> Tensor:
        """W x as partial sums [splits, R, N] in fp32."""
        rows, (columns, inner) = len(x), linear.weight.shape
        block, size = split_k_tile(columns, inner, x.element_size())
        row_block = min(64, max(16, power_of_two(rows)))
        y = torch.empty(parts_of(inner, size), rows, columns, dtype=torch.float32, device=x.device)
        self.kernels.split_k_product[(parts_of(columns, block), len(y), parts_of(rows, row_block))](
            x,
            linear.weight,
            y,
            rows,
            columns,
            INNER=inner,
            BLOCK_INNER=size,
            BLOCK=block,
            ROWS=row_block,
            EARLY=self.early,
            num_warps=4,
            **self.launch,
        )
        return y

    def _add_norm(self, x: Tensor, partial: Tensor, linear: nn.Linear, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
        """x + Σ partial sums + b, and its layer norm."""
        rows, width = x.shape
        y, normed = torch.empty_like(x), torch.empty_like(x)
        self.kernels.add_norm[(rows,)](
            x,
            partial,
            x if linear.bias is None else linear.bias,
            *_affine(norm, x),
            y,
            normed,
            rows,
            norm.eps,
            SPLITS=len(partial),
            WIDTH=width,
            BLOCK=power_of_two(width),
            SHIFT=norm.bias is not None,
            BIAS=linear.bias is not None,
            EARLY=self.early,
            num_warps=4,
            **self.launch,
        )
        return y, normed

    def _attend(
        self, qkv: Tensor, bias: Tensor | None, past: State, seen: Tensor, attention: CausalSelfAttention
    ) -> Tensor:
        """The heads' contexts [R, H·d]; queries, keys and values are Σ qkv + bias, summed over splits."""
        keys, values = past["key_buffer"], past["value_buffer"]
        rows, heads, slots, width = keys.shape
        context = torch.empty(rows, heads * width, device=seen.device, dtype=attention.output.weight.dtype)
        each, warps = attention_tile(rows * heads, slots)
        block = power_of_two(width)
        self.kernels.attend[(rows * heads,)](
            qkv,
            qkv if bias is None else bias,
            keys,
            values,
            seen,
            context,
            rows,
            slots,
            width**-0.5,
            HEADS=heads,
            WIDTH=width,
            BLOCK_WIDTH=block,
            PARTS=warps * max(1, 512 // (block * keys.element_size())),
            EACH=each,
            SPLITS=len(qkv),
            BIAS=bias is not None,
            ROTARY=isinstance(attention.position, Rotary),
            EARLY=self.early,
            num_warps=warps,
            **self.launch,
        )
        return context


def _affine(norm: nn.LayerNorm | None, otherwise: Tensor) -> tuple[Tensor, Tensor]:
    """A norm's gain and shift; `otherwise`, which no kernel reads, in place of a missing one."""
    gain, shift = (None, None) if norm is None else (norm.weight, norm.bias)
    return otherwise if gain is None else gain, otherwise if shift is None else shift


def _name(feedforward: Any) -> str:
    return "gelu" if isinstance(feedforward.activation, nn.GELU) else "relu"


def allows(step: DecodingStep, use: Use) -> Why:
    """Only for decoding, where the state has a fixed capacity."""
    known = is_usual(step.model) and is_known(step.model)
    return None if known else "it needs unmodified pre-norm blocks with learned or rotary positions, in one precision"


ROWS = (
    Row(
        "GPT step in few kernels",
        "regard.decoding.writer:DecodingStep.step",
        makes=lambda step: DecodeStep(step.model),
        fits=lambda *arguments: not torch.is_autocast_enabled("cuda"),
        allows=allows,
        needs=needs_triton,
    ),
)
