"""GPT-2 as a page of plain PyTorch: the peer that small training scripts such as nanoGPT are.

    x = E[w_t] + p_t,   x = x + Attention(LN(x)),   x = x + FF(LN(x))  layers times,   logits = E LN(x)

One matrix makes queries, keys and values of all heads; attention is PyTorch's own causal kernel; E also predicts.
Dropout acts on x_0, the attention weights and each part's output. Weights: Radford et al. 2019.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.attend = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self._heads(x)
        rate = self.dropout if self.training else 0.0
        return self._add(x, F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=rate))

    def extend(self, x: Tensor, at: Tensor, cache: Tensor) -> Tensor:
        """The columns x at the places `at` [T], after what the cache [2, R, H, C, D / H] holds; it is written to."""
        query, *kept = self._heads(x)
        for memory, new in zip(cache, kept):
            memory.index_copy_(2, at, new)
        seen = torch.arange(cache.size(3), device=x.device) <= at[:, None]  # [T, C]
        return self._add(x, F.scaled_dot_product_attention(query, cache[0], cache[1], attn_mask=seen))

    def _heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, [R, H, T, D / H] each."""
        rows, columns, _ = x.shape
        heads = self.project(self.attention_norm(x)).view(rows, columns, 3, self.heads, -1)
        return heads.permute(2, 0, 3, 1, 4).unbind(0)

    def _add(self, x: Tensor, found: Tensor) -> Tensor:
        x = x + self.drop(self.attend(found.transpose(1, 2).reshape(x.shape)))
        return x + self.drop(self.contract(F.gelu(self.expand(self.feedforward_norm(x)), approximate="tanh")))

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class PlainGPT(nn.Module):
    def __init__(
        self, vocabulary: int, *, layers: int, width: int, heads: int, context: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(PlainBlock(width, heads, dropout) for _ in range(layers))
        self.finish = nn.LayerNorm(width)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean −log P(target)."""
        x = self.words(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        x = F.dropout(x, self.dropout, self.training) if self.dropout else x
        for block in self.blocks:
            x = block(x)
        return self.loss(x, targets)

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        logits = F.linear(self.finish(x), self.words.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def compile_parts(self) -> None:
        """`torch.compile` for a block, whose code all blocks share, and for the loss. The compiled whole repeats the
        block in its graph: it takes longer to compile the more blocks there are, and is hardly faster."""
        for block in self.blocks:
            block.compile()
        self.loss = torch.compile(self.loss)  # type: ignore[method-assign]

    def caches(self, rows: int, capacity: int) -> Tensor:
        """Room for the keys and values of every block: [layers, 2, R, H, C, D / H]."""
        width = self.words.embedding_dim // self.heads
        return self.words.weight.new_zeros(len(self.blocks), 2, rows, self.heads, capacity, width)

    def extend(self, tokens: Tensor, at: Tensor, caches: Tensor) -> Tensor:
        """The most probable next token [R, 1] after tokens [R, T] at the places `at`."""
        x = self.words(tokens) + self.places(at)
        for block, cache in zip(self.blocks, caches):
            x = block.extend(x, at, cache)  # type: ignore[operator]  # ModuleList forgets what it holds
        return F.linear(self.finish(x[:, -1:]), self.words.weight).argmax(-1)
