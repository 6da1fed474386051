"""Attention: before every word it writes, the decoder looks back at the whole source, each time at other places.

    h_s = [→h_s ; ←h_s]                               both directions: each word knows its whole sentence
    c_t = Σ_s α(s_{t-1}, h_s) h_s                     α: any score of layers/scores.py
    s_t = cell([E[y_{t-1}] ; c_t], s_{t-1}),          s_0 = tanh(W [→h_S ; ←h_1])
    P(y_t) = softmax(W_o tanh(W_r [s_t ; c_t ; E[y_{t-1}]]))

Bahdanau et al. 2015. Further decoder layers run over the first one's states, which alone ask (Wu et al. 2016). Without
feeding the context stays out of the cell, s_t = cell(E[y_{t-1}], s_{t-1}) and c_t = Σ_s α(s_t, h_s) h_s (global
attention, Luong et al. 2015): nothing is then sequential but the fused recurrence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.cell import walk
from regard.layers.embedding import Embedding, Output
from regard.layers.encoder import FUSED, RecurrentEncoder
from regard.layers.feeding import Given, look_and_step
from regard.layers.memory import ScoredAttention
from regard.layers.recurrent import CELLS, Fused
from regard.layers.scores import KERNELS, SCORES, Additive, Kernel
from regard.layers.state import Span, State, last, map_state, spread
from regard.settings import setting
from regard.systems.seq2seq import TRAINING as RECURRENT_TRAINING
from regard.systems.seq2seq import RecurrentPairSettings
from regard.systems.translation import Translator, explain_through, is_shared, rate, through


@dataclass(frozen=True)
class Settings(RecurrentPairSettings):
    cell: str = setting("gru", "{}", choices=tuple(FUSED))
    score: str = setting("additive", "α: {}", choices=SCORES)
    bandwidth: float = setting(0.0, f"h, the reach of a kernel ({', '.join(KERNELS)}); 0 = √width", least=0)
    feed: bool = setting(True, "the context enters the cell (input feeding); false = only the prediction")


SIZES: dict[str, dict[str, object]] = {
    "tiny": {
        "layers": 1,
        "width": 96,
        "embedding": 64,
        "dropout": 0.0,
        "training.batch_tokens": 1024,
        "training.learning_rate": 5e-3,
        "training.warmup": 200,
    },
    "small": {"layers": 1, "width": 512, "embedding": 256},
    "medium": {"layers": 1, "width": 1000, "embedding": 620, "training.batch_tokens": 8192},
    "large": {"layers": 2, "width": 1024, "embedding": 1024, "training.batch_tokens": 16384},
}
TRAINING = RECURRENT_TRAINING


class Bahdanau(Translator):
    def __init__(self, vocabulary: int, settings: Settings, *, source_vocabulary: int | None = None) -> None:
        words, width = settings.words, settings.width
        shared = is_shared(settings.shared, source_vocabulary)
        super().__init__(
            Embedding(vocabulary, words, scale=words**0.5),
            None if shared else Embedding(source_vocabulary or vocabulary, words, scale=words**0.5),
            Output(words, vocabulary, tied=settings.tied, bias=True),
            dropout=rate(settings.dropout),
        )
        self.settings = settings
        self.encoder = RecurrentEncoder(
            words, width, cell=settings.cell, layers=settings.layers, bidirectional=True, dropout=rate(settings.dropout)
        )
        memory = self.encoder.width
        kind = CELLS[settings.cell]
        inputs = [words + (memory if settings.feed else 0), *[width] * (settings.layers - 1)]
        self.layers = nn.ModuleList(kind(size, width) for size in inputs)
        self.bridge = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(memory, width) for name in kind.memory}) for _ in inputs
        )
        self.attend = ScoredAttention(width, memory, score=settings.score, bandwidth=settings.bandwidth or width**0.5)
        self.readout = nn.Linear(width + memory + words, words)
        self.begin_words()

    # -- the source --------------------------------------------------------------------------------------------------

    def encode(self, source: Tensor, lengths: Tensor | None) -> State:
        memory, last_states = self.encoder(self._source_vectors(source), lengths)
        return {"memory": memory, "last": last_states}

    def explain_encode(self, source: Tensor, lengths: Tensor | None) -> tuple[State, State]:
        vectors = self._source_vectors(source)
        memory, last_states, parts = self.encoder.explain(vectors, lengths)
        return {"memory": memory, "last": last_states}, {"embedding": vectors, "layers": parts}

    def remember(self, encoded: State) -> State:
        """The memory, what the score needs of it, and what each place would add to the cell's gates if looked at."""
        memory = encoded["memory"]
        kept = {"memory": memory, "keys": self.attend.remember(memory)}
        if self.settings.feed:
            # W [e ; c] = W_e e + W_c Σ α h = W_e e + Σ α (W_c h): the products are the source's, not the step's.
            kept["places"] = memory @ self._input_weights()[1].T
        return kept

    def opening(self, encoded: State, width: int, *, capacity: int | None, dtype: torch.dtype) -> State:
        past: State = {}
        for layer, bridge in enumerate(self.bridge):
            ended = encoded["last"][str(layer)]
            past[str(layer)] = {name: bridge[name](ended[name]) for name in ended}  # type: ignore[index]
            past[str(layer)]["hidden"] = past[str(layer)]["hidden"].tanh()
        exact = self._first.weight("weight_hh").dtype  # a recurrence is a running sum, also under autocast: see Fused
        return spread(map_state(lambda leaf: leaf.to(exact), past), width)

    # -- the target --------------------------------------------------------------------------------------------------

    def contextualise(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        words = self.dropout(self.embedding(tokens, span))  # [R, T, D]
        look = self._look_and_step if self.settings.feed else self._step_and_look
        hidden, context, first = look(words, state["past"]["0"], state["source"], span)
        hidden, past = through(self._upper, self.dropout, hidden, state["past"], span)
        return self._read_out(hidden, context, words), {"0": first, **past}

    def _step_and_look(self, words: Tensor, past: State, source: State, span: Span) -> tuple[Tensor, Tensor, State]:
        """Without feeding: the recurrence of all steps, then what all of them look at."""
        hidden, new = self._first(words, past, span)  # [R, T, H]
        queries = hidden.reshape(source["valid"].size(0), -1, hidden.size(-1))  # [N, width·T, H]
        weights = self.attend(queries, source["keys"], source["valid"][:, None])
        return hidden, self._context(weights, source, len(hidden)), new

    def _look_and_step(self, words: Tensor, past: State, source: State, span: Span) -> tuple[Tensor, Tensor, State]:
        """With feeding: s_t needs c_t, which needs s_{t-1}. All else is computed before the loop, or after it."""
        score, weight, bias = self.attend.score, self._first.weight("weight_hh"), self._first.weight("bias_hh")
        with torch.autocast(words.device.type, enabled=False):  # a recurrence is a running sum: see Fused
            drives = F.linear(words.to(weight.dtype), self._input_weights()[0], self._first.weight("bias_ih"))
            before = {name: value.to(weight.dtype) for name, value in past.items()}
            keys, places = source["keys"].to(weight.dtype), source["places"].to(weight.dtype)
            given = Given(self.settings.cell, keys, places, source["valid"][:, None], weight, bias)
            if isinstance(score, Additive):
                given = given._replace(query=score.query.weight, judge=score.judge.weight)
            elif not isinstance(score, Kernel):
                given = given._replace(scale=score.scale or 1.0)  # bilinear: M k is the key
            every, weights = (self._step_by_step if isinstance(score, Kernel) else look_and_step)(drives, before, given)
        ended = {name: last(every[name], before[name], span) for name in past}
        return every["hidden"], self._context(weights.flatten(1, 2), source, len(words)), ended

    def _step_by_step(self, drives: Tensor, carried: State, given: Given) -> tuple[State, Tensor]:
        """`look_and_step` for a score whose gradient is not written out."""
        steps, looks = [], []
        for drive in drives.unbind(dim=1):
            hidden = carried["hidden"]
            asked = hidden.view(len(given.keys), -1, hidden.size(-1))
            looks.append(self.attend(asked, given.keys, given.visible))  # [N, width, S]
            drive = drive + (looks[-1] @ given.places).flatten(0, 1)  # W_c c_t
            new = self._first.gates(drive, F.linear(hidden, given.weight, given.bias), carried)
            carried = {name: new[name] for name in carried}
            steps.append(carried)
        every = {name: torch.stack([step[name] for step in steps], dim=1) for name in carried}  # [R, T, H]
        return every, torch.stack(looks, dim=2)

    def explain_context(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        words = self.dropout(self.embedding(tokens, span))
        visible, memory = state["source"]["valid"][:, None], state["source"]["memory"]

        def look(query: Tensor) -> State:  # [R, H] → weights [R, S], context [R, M]
            asked = query.view(len(memory), -1, query.size(-1))
            parts = self.attend.explain(asked, memory, visible)
            parts["context"] = parts["weights"] @ memory
            return {name: part.flatten(0, 1) for name, part in parts.items()}

        def step(word: Tensor, before: State) -> State:
            if not self.settings.feed:
                new = self._first.step(word, before)
                return {**new, **look(new["hidden"])}
            found = look(before["hidden"])
            return {**self._first.step(torch.cat([word, found["context"]], dim=-1), before), **found}

        hidden, first, parts = walk(step, words, state["past"]["0"], span)
        hidden, past, upper = explain_through(self._upper, self.dropout, hidden, state["past"], span)
        shown = self._read_out(hidden, parts["context"], words)
        parts = {"embedding": words, "layers": {"0": parts, **upper}, "hidden": shown}
        return shown, {"0": first, **past}, parts

    def attention(self, parts: State) -> dict[str, Tensor]:
        return {"cross/0": parts["layers"]["0"]["weights"][:, None]}  # one head

    def alignment(self, parts: State) -> Tensor:
        return parts["layers"]["0"]["weights"]

    # ----------------------------------------------------------------------------------------------------------------

    @property
    def _first(self) -> Fused:
        """The decoder layer that asks."""
        return self.layers[0]  # type: ignore[return-value]  # ModuleList forgets what it holds

    @property
    def _upper(self) -> list[tuple[str, nn.Module]]:
        return list(self.layers.named_children())[1:]

    def _input_weights(self) -> tuple[Tensor, Tensor]:
        """The first layer's W_e, for the word, and W_c, for the context."""
        weight = self._first.weight("weight_ih")
        return weight[:, : self.settings.words], weight[:, self.settings.words :]

    @staticmethod
    def _context(weights: Tensor, source: State, rows: int) -> Tensor:
        """c_t = Σ_s α_ts h_s for all t at once: weights [N, width·T, S] → [R, T, M]."""
        memory = source["memory"]
        return (weights.to(memory.dtype) @ memory).view(rows, -1, memory.size(-1))

    def _read_out(self, hidden: Tensor, context: Tensor, words: Tensor) -> Tensor:
        return self.dropout(self.readout(torch.cat([hidden, context, words], dim=-1)).tanh())
