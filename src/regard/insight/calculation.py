"""What a model computes on one text, ready to be shown with its numbers at any step, layer and head.

    calculation = calculate_language(model, tokenizer, "the dog ran")
    calculation.at(step=2, layer="self/0", head=1)            a Work
    calculation.layers                                        what can be chosen: {"self/0": 4, …}, with its heads

The model reads the text once, by `explain`; `at` only looks at what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.base.errors import RegardError
from regard.base.numbers import counted
from regard.insight import equations
from regard.insight.ngram_work import Counted, ngram_sections
from regard.insight.search_work import search_sections
from regard.insight.tracing import label_number, system_name, target_of
from regard.insight.words import labels
from regard.insight.work import Section, Sum, Work, components, named_words, numbers
from regard.layers.attention import FullSelfAttention, SelfAttention
from regard.layers.blocks import Block, DecoderBlock, EncoderBlock, PreNorm
from regard.layers.context import Average, Window
from regard.layers.encoder import KINDS, RecurrentEncoder
from regard.layers.matrix_state import LinearAttention
from regard.layers.position import Rotary
from regard.layers.recurrent import CELLS, Elman, Recurrent
from regard.layers.scan import MinGRUBlock
from regard.layers.scores import Bounded
from regard.layers.state import State
from regard.systems.bahdanau import Bahdanau
from regard.systems.classifier import Classifier
from regard.systems.model import Model, Stack
from regard.systems.ngram import NGram
from regard.systems.nnlm import NNLM, HiddenLayer
from regard.systems.seq2seq import Seq2Seq
from regard.systems.transformer import Transformer
from regard.systems.translator import Translator
from regard.text.tokenizer import Tokenizer

PROJECTED = "Their largest components; x is what the layer reads, after its norm if it has one."
ORDER = ("cross", "self", "average", "layer", "pool", "encoder")  # of the layers that a number can mean
MOST_STEPS = 100  # of a page
EQUATIONS = {kind: KINDS[name][1] for name, kind in CELLS.items()}
Sections = list[Section]


@dataclass(frozen=True)
class Place:
    """A layer whose arithmetic can be shown."""

    sections: Callable[[int, int], Sections]  # at a step, of a head
    heads: int = 0  # 0: it has none
    words: tuple[str, ...] = ()  # what its steps read
    before: bool = False  # a translator's encoder: its steps are not those of what is written


@dataclass(frozen=True)
class Calculation:
    system: str
    text: str
    read: tuple[str, ...]  # the token of each step
    then: tuple[str, ...]  # the token whose probability it shows
    places: dict[str, Place]
    after: Callable[[int], Sections]  # what follows the layers at a step: prediction and search
    run: str = ""

    @property
    def layers(self) -> dict[str, int]:
        """The layers that can be chosen, and how many heads each has."""
        return {name: place.heads for name, place in self.places.items()}

    def at(self, step: int | None = None, layer: str | int | None = None, head: int | None = None) -> Work:
        """The arithmetic of one step; without a step of the last, without a layer of the last one that looks back."""
        name = self._layer(layer)
        place = self.places.get(name, Place(lambda step, head: [], words=self.read))
        steps = len(place.words)
        step = steps - 1 if step is None else step
        if not 0 <= step < steps:
            written = not place.before and any(other.before for other in self.places.values())
            raise RegardError(
                f"There is no step {step}: the steps of this {'translation' if written else 'text'} are 0 to "
                f"{steps - 1}, and step 0 reads {place.words[0]!r}."
            )
        if head is not None and not place.heads:
            raise RegardError(f"{name or self.system} has no heads: leave --head out.")
        if head is not None and not 0 <= head < place.heads:
            raise RegardError(f"There is no head {head}: {name} has {counted(place.heads, 'head')}, counted from 0.")
        chosen = (0 if head is None else head) if place.heads else None
        found = place.sections(step, chosen or 0)
        found += [] if place.before else self.after(step)
        return Work(
            system=self.system,
            text=self.text,
            step=step,
            layer=name,
            head=chosen,
            read=labels(place.words)[step],
            then="" if place.before else labels([self.then[step]])[0],
            sections=tuple(found),
            layers=self.layers,
            run=self.run,
        )

    def at_all_steps(self, chosen: Work) -> list[Work]:
        """The same layer and head at every step of the text, for a page; of a long one only the chosen step."""
        steps = len(self.places[chosen.layer].words if chosen.layer else self.read)
        if steps > MOST_STEPS:
            return [chosen]
        return [self.at(step, chosen.layer or None, chosen.head) for step in range(steps)]

    def _layer(self, layer: str | int | None) -> str:
        kinds = [name.split("/")[0] for name in self.places]
        if layer is None:
            first = next((kind for kind in ORDER if kind in kinds), "")
            return next((name for name in reversed(self.places) if name.split("/")[0] == first), "")
        asked = str(layer)
        named = [asked, *(f"{kind}/{asked}" for kind in ORDER), f"{asked}/forward"]
        for name in named:
            if name in self.places:
                return name
        there = ", ".join(self.places) or "no layers"
        raise RegardError(f"There is no layer {asked!r} to work out: {self.system} has {there}.")


# -- the three tasks -------------------------------------------------------------------------------------------------


@torch.no_grad()
def calculate_language(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    *,
    counts: Callable[[], Counted | None] = lambda: None,
    system: str = "",
    run: str = "",
) -> Calculation:
    """Of a language model that reads `text` from the beginning of a line. `counts`: of an n-gram, what it counted."""
    model.eval()
    system = system_name(model, system)
    ids = [tokenizer.eos, *tokenizer.encode(text)]
    return _language(model, ids, tokenizer.token, text, counts, system, run, predicts=True)


@torch.no_grad()
def calculate_ids(model: Stack, ids: Sequence[int], word: Callable[[int], str]) -> Calculation:
    """Of a model that reads exactly these tokens, without a boundary; its layers alone, and no prediction."""
    return _language(model, list(ids), word, "", lambda: None, type(model).__name__, "", predicts=False)


def _language(
    model: Model,
    ids: list[int],
    word: Callable[[int], str],
    text: str,
    counts: Callable[[], Counted | None],
    system: str,
    run: str,
    *,
    predicts: bool,
) -> Calculation:
    tokens = torch.tensor([ids], device=model.device)
    if not isinstance(model, NGram | Stack):
        raise _unknown(system)
    logits, _, parts = model.explain(tokens)
    then = [*ids[1:], int(logits[0, -1].argmax())]
    read, names = tuple(word(token) for token in ids), tuple(word(token) for token in then)
    if isinstance(model, NGram):
        counted_again = counts()

        def orders(step: int) -> Sections:
            return ngram_sections(model, ids, parts, word, step, then[step], counted_again)

        return Calculation(system, text, read, names, {}, orders, run)
    places = {}
    x = parts["embedding"]
    for name, layer in model.layers.named_children():
        inside = parts["layers"][name]
        place = _place(layer, x, inside, name, read, system)
        places[place[0]] = Place(place[1], place[2], read)
        x = inside["hidden"]
    after = _stack_prediction(model, parts, logits, word, then, x) if predicts else lambda step: []
    return Calculation(system, text, read, names, places, after, run)


@torch.no_grad()
def calculate_translation(
    model: Translator,
    source_tokenizer: Tokenizer,
    tokenizer: Tokenizer,
    source: str,
    target: str | None = None,
    *,
    prefix: str = "",
    beam: int = 5,
    length_penalty: float = 1.0,
    forbidden: Sequence[int] = (),
    system: str = "",
    run: str = "",
) -> Calculation:
    """Of a translator that writes `target`, or what beam search finds; the search is worked out, too."""
    model.eval()
    system = system_name(model, system)
    read, written, branches = target_of(
        model, source_tokenizer, tokenizer, source, target, prefix=prefix, beam=beam, length_penalty=length_penalty,
        forbidden=forbidden,
    )  # fmt: skip
    sources = torch.tensor([read], device=model.device)
    tokens = torch.tensor([[tokenizer.eos, *written[:-1]]], device=model.device)
    encoded, source_parts = model.explain_encode(sources, None)
    begun = model.begin_from(encoded, sources, None)
    logits, _, parts = model.explain(tokens, begun)
    spoken = tuple(source_tokenizer.token(token) for token in read)
    asked = tuple(tokenizer.token(token) for token in tokens[0].tolist())
    places = _decoder_places(model, parts, begun, asked, spoken)
    if places is None:
        raise _unknown(system)
    encoder = _encoder_places(model, source_parts, spoken)
    places |= {name: replace(place, before=True) for name, place in encoder.items()}
    begun_words = len(tokenizer.encode(prefix))
    predict = _prediction(model, parts["hidden"][0], logits[0], tokenizer.token, written)
    read_out = _readout(model, parts, asked)

    def after(step: int) -> Sections:
        return [
            *read_out(step), *predict(step), *search_sections(branches, step - begun_words, length_penalty),
        ]  # fmt: skip

    then = tuple(tokenizer.token(token) for token in written)
    return Calculation(system, source, asked, then, places, after, run)


@torch.no_grad()
def calculate_classification(
    model: Classifier,
    source_tokenizer: Tokenizer,
    label_tokenizer: Tokenizer,
    text: str,
    label: str | None = None,
    *,
    system: str = "",
    run: str = "",
) -> Calculation:
    """Of a classifier: its steps are those of its encoder, and what is made of all of them stands after each."""
    model.eval()
    system = system_name(model, system)
    read = [*source_tokenizer.encode(text), source_tokenizer.eos]
    if len(read) == 1:
        raise RegardError("There is nothing to label: give a text.")
    sources = torch.tensor([read], device=model.device)
    encoded, parts = model.explain_encode(sources, None)
    logits, _, _ = model.explain(
        torch.tensor([[label_tokenizer.eos]], device=model.device), model.begin_from(encoded, sources, None)
    )
    among = logits[0].index_fill(-1, torch.tensor(label_tokenizer.specials, device=logits.device), -torch.inf)
    asked = int(among[0].argmax()) if label is None else label_number(label, label_tokenizer)
    spoken = tuple(source_tokenizer.token(token) for token in read)
    memory, whole = encoded["memory"][0], encoded["whole"]
    places = _encoder_places(model, parts, spoken)
    predict = _prediction(model, whole, among, label_tokenizer.token, [asked])

    def pooled(step: int, head: int) -> Sections:
        return _pooled(model, numbers(memory), numbers(whole[0]), labels(spoken))

    name = label_tokenizer.token(asked)
    if model.settings.pool == "mean":
        places = {"pool": Place(pooled, 0, spoken), **places}
    then = (name,) * len(spoken)
    return Calculation(system, text, spoken, then, places, lambda step: [*predict(0)], run)


def _unknown(system: str) -> RegardError:
    return RegardError(
        f"The equations of {system} are your own and not known here: --work shows the systems of `regard systems`."
    )


# -- layers ----------------------------------------------------------------------------------------------------------


def _place(
    layer: nn.Module, x: Tensor, inside: State, name: str, words: tuple[str, ...], system: str
) -> tuple[str, Callable[[int, int], Sections], int]:
    """The name of a language model's layer, what it computes at a step, and its heads."""
    spoken = labels(words)
    tensor = f"layer/{name}"
    if isinstance(layer, Block):
        if isinstance(layer.attention, LinearAttention):
            return f"self/{name}", _linear(layer, x, inside, tensor, spoken), layer.attention.heads
        return f"self/{name}", _block(layer, x, inside, tensor, f"attention/self/{name}", spoken), layer.attention.heads
    if isinstance(layer, SelfAttention):
        return f"self/{name}", _bare(layer, x, inside, name, spoken), 1
    if isinstance(layer, Recurrent):
        equation = EQUATIONS[type(layer)]
        first = {memory: x.new_zeros(layer.width) for memory in layer.memory}
        return f"layer/{name}", _cell(layer, equation, x, inside, first, tensor), 0
    if isinstance(layer, MinGRUBlock):
        return f"layer/{name}", _minimal(layer, x, inside, tensor), 0
    if isinstance(layer, Average):

        def mean(step: int, head: int) -> Sections:
            vectors, found = numbers(x[0, : step + 1]), numbers(inside["average"][0, step])
            return [equations.average(spoken[: step + 1], vectors, found, "e", f"hidden/{tensor}", step)]

        return f"average/{name}", mean, 0
    if isinstance(layer, Window):
        return f"layer/{name}", lambda step, head: [], 0
    raise _unknown(system)


def _attention_lines(parts: State, spoken: Sequence[str], step: int, head: int, last: int, tensor: str) -> Sections:
    """Scaled dot-product attention of one head to the first `last` words."""
    query, keys, values = (numbers(parts[name][0, head]) for name in ("query", "keys", "values"))
    scores, weights = (numbers(parts[name][0, head, step, :last]) for name in ("scores", "weights"))
    seen = spoken[:last]
    lines = equations.scaled_scores(query[step], keys[:last], seen, scores)
    return equations.look(seen, lines, weights, values[:last], None, tensors=(tensor, ""), step=step, head=head)


def _projections(attention: Any, x: Tensor, parts: State, spoken: Sequence[str], step: int, head: int) -> Section:
    """Query, key and value of a head from what its layer reads; key and value of the word it looks at most."""
    heads, width = attention.heads, parts["query"].size(-1)
    shared = getattr(attention, "key_heads", heads)
    own, most = head * shared // heads, int(parts["weights"][0, head, step].argmax())
    word = named_words(spoken)[most]
    lines = [
        line
        for name, kind, row, at in (
            ("q", "query", head, step),
            (f"k({word})", "keys", heads + own, most),
            (f"v({word})", "values", heads + shared + own, most),
        )
        if kind == "values" or not isinstance(attention.position, Rotary)  # which turns queries and keys afterwards
        for line in _projected(name, attention.project, width * row, x[0, at], parts[kind][0, head, at])
    ]
    return Section("query, key and value", tuple(lines), PROJECTED)


def _projected(name: str, linear: nn.Linear, first: int, x: Tensor, vector: Tensor) -> list[Sum]:
    """W x + b by the rows of a matrix that begin at `first`."""
    rows = slice(first, first + len(vector))
    bias = None if linear.bias is None else numbers(linear.bias[rows])
    return equations.projected(name, numbers(linear.weight[rows]), bias, numbers(x), numbers(vector))


def _contexts(parts: State, step: int) -> np.ndarray:
    """What each head finds: [heads, d]."""
    weights, values = numbers(parts["weights"][0, :, step]), numbers(parts["values"][0])
    return np.einsum("hs,hsd->hd", weights, values)


def _block(
    layer: Any, x: Tensor, inside: State, tensor: str, weights: str, spoken: Sequence[str], causal: bool = True
) -> Callable[[int, int], Sections]:
    """A Transformer's block; `x` is what it reads."""
    parts = inside["attention"]
    normed = isinstance(layer, PreNorm)
    enters = layer.attention_norm(x) if normed else x

    def sections(step: int, head: int) -> Sections:
        last = step + 1 if causal else len(spoken)
        output = numbers(parts["output"][0, step])
        return [
            _projections(layer.attention, enters, parts, spoken, step, head),
            *_attention_lines(parts, spoken, step, head, last, weights),
            equations.heads_joined(layer.attention, _contexts(parts, step), output, f"hidden/{tensor}/attention", step),
            *_residual(layer, x, inside, tensor, step),
        ]

    return sections


def _residual(layer: Any, x: Tensor, inside: State, tensor: str, step: int) -> Sections:
    if not isinstance(layer, PreNorm):
        return []  # a layer norm stands between the sums
    added = {"x": numbers(x[0, step])}
    added |= {name: numbers(inside[name]["output"][0, step]) for name in ("attention", "cross") if name in inside}
    added["feed-forward"] = numbers(inside["feedforward"][0, step])
    return [equations.residual(added, numbers(inside["hidden"][0, step]), f"hidden/{tensor}", step)]


def _linear(layer: Any, x: Tensor, inside: State, tensor: str, spoken: Sequence[str]) -> Callable[[int, int], Sections]:
    normed = isinstance(layer, PreNorm)
    read = layer.attention_norm(x) if normed else x

    def sections(step: int, head: int) -> Sections:
        output, contexts = numbers(inside["attention"]["output"][0, step]), numbers(inside["attention"]["read"][0])
        with torch.no_grad():
            found = equations.linear_look(layer.attention, read[:, : step + 1], spoken[: step + 1], head)
        return [
            *found,
            equations.heads_joined(layer.attention, contexts[:, step], output, f"hidden/{tensor}/attention", step),
            *_residual(layer, x, inside, tensor, step),
        ]

    return sections


def _bare(
    layer: SelfAttention, x: Tensor, inside: State, name: str, spoken: Sequence[str]
) -> Callable[[int, int], Sections]:
    def sections(step: int, head: int) -> Sections:
        seen = spoken[: step + 1]
        weights, scores = (numbers(inside[part][0, 0, step, : step + 1]) for part in ("weights", "scores"))
        with torch.no_grad():
            prepared = layer.score.prepare(inside["keys"][0, 0, : step + 1])
            lines = equations.named_scores(layer.score, inside["query"][0, 0, step], prepared, seen, scores)
        values, found = numbers(inside["values"][0, 0, : step + 1]), numbers(inside["hidden"][0, step])
        looks = equations.look(
            seen, lines, weights, values, found, bounded=isinstance(layer.score, Bounded),
            tensors=(f"attention/self/{name}", f"hidden/layer/{name}"), step=step, letters=("h", "v"),
        )  # fmt: skip
        most = int(weights.argmax())
        word = named_words(seen)[most]
        function = {nn.Tanh: "tanh", nn.ReLU: "relu"}.get(type(layer.activation), "")
        vectors = (("q", layer.query, "query", step), (f"k({word})", layer.key, "keys", most),
                   (f"v({word})", layer.value, "values", most))  # fmt: skip
        own = [
            line
            for letter, linear, kind, at in vectors
            if isinstance(linear, nn.Linear)
            for line in equations.projected(
                letter, numbers(linear.weight), None, numbers(x[0, at]), numbers(inside[kind][0, 0, at]), function
            )
        ]
        return [*([Section("query, key and value", tuple(own), PROJECTED)] if own else []), *looks]

    return sections


def _cell(
    layer: Recurrent, equation: Callable[..., State], x: Tensor, inside: State, first: State, tensor: str,
    names: Callable[[], list[str]] | None = None,
) -> Callable[[int, int], Sections]:  # fmt: skip
    weights = layer.fused.all_weights[0]
    activation = layer.activation if isinstance(layer, Elman) else "tanh"
    return _steps_of(equation, weights, x, inside, first, tensor, activation, names)


def _steps_of(
    equation: Callable[..., State], weights: Sequence[Tensor], x: Tensor, inside: State, first: State, tensor: str,
    activation: str = "tanh", names: Callable[[], list[str]] | None = None, back: int = 1,
) -> Callable[[int, int], Sections]:  # fmt: skip
    """The cell at each step; its state before is that of `back` steps earlier, and `first` where there is none."""

    def sections(step: int, head: int) -> Sections:
        before_at = step - back
        inside_text = 0 <= before_at < x.size(1)
        before = {name: inside[name][0, before_at] if inside_text else first[name] for name in first}
        now = {name: numbers(part[0, step]) for name, part in inside.items() if part.dim() == 3}
        return equations.cell(
            equation, weights, numbers(x[0, step]), {name: numbers(part) for name, part in before.items()}, now,
            names() if names else components("x", x.size(2)), activation=activation, tensor=tensor, step=step,
        )  # fmt: skip

    return sections


def _minimal(layer: MinGRUBlock, x: Tensor, inside: State, tensor: str) -> Callable[[int, int], Sections]:
    with torch.no_grad():
        read = layer.recurrence_norm(x)

    def sections(step: int, head: int) -> Sections:
        now = {name: numbers(inside[name][0, step]) for name in ("update", "candidate", "memory")}
        before = numbers(inside["memory"][0, step - 1]) if step else np.zeros_like(now["memory"])
        return equations.minimal_gru(layer.recurrence.project, numbers(read[0, step]), before, now, tensor, step)

    return sections


# -- translators -----------------------------------------------------------------------------------------------------


def _decoder_places(
    model: Translator, parts: State, begun: State, words: tuple[str, ...], source: tuple[str, ...]
) -> dict[str, Place] | None:
    x, places = parts["embedding"], {}
    if isinstance(model, Transformer):
        for name, block in model.named_blocks():
            inside = parts["layers"][name]
            places[f"self/{name}"] = Place(
                _block(block, x, inside, f"layer/{name}", f"attention/self/{name}", labels(words)),
                block.attention.heads, words,
            )  # fmt: skip
            places[f"cross/{name}"] = Place(_across(block, x, inside, name, labels(source)), block.cross.heads, words)
            x = inside["hidden"]
        return places
    if not isinstance(model, Seq2Seq | Bahdanau):
        return None
    for name, layer in model.layers.named_children():
        inside, first = parts["layers"][name], {key: part[0] for key, part in begun["past"][name].items()}
        assert isinstance(layer, Recurrent)
        if isinstance(model, Bahdanau) and name == "0":
            places["cross/0"] = Place(_attending(model, layer, x, inside, begun, first, labels(source)), 1, words)
        else:
            places[f"layer/{name}"] = Place(
                _cell(layer, EQUATIONS[type(layer)], x, inside, first, f"layer/{name}"), 0, words
            )
        x = inside["hidden"]
    return places


def _across(
    block: DecoderBlock, x: Tensor, inside: State, name: str, source: Sequence[str]
) -> Callable[[int, int], Sections]:
    parts = inside["cross"]
    normed, between = isinstance(block, PreNorm), x + inside["attention"]["output"]
    enters = block.cross_norm(between) if normed else block.attention_norm(between)

    def sections(step: int, head: int) -> Sections:
        output, vector = numbers(parts["output"][0, step]), parts["query"][0, head, step]
        query = _projected("q", block.cross.query, head * len(vector), enters[0, step], vector)
        return [
            Section("query", tuple(query), PROJECTED),
            *_attention_lines(parts, source, step, head, len(source), f"attention/cross/{name}"),
            equations.heads_joined(block.cross, _contexts(parts, step), output, f"hidden/layer/{name}/cross", step),
            *_residual(block, x, inside, f"layer/{name}", step),
        ]

    return sections


def _attending(
    model: Bahdanau, layer: Recurrent, x: Tensor, inside: State, begun: State, first: State, source: Sequence[str]
) -> Callable[[int, int], Sections]:
    """Bahdanau's first layer: the state asks the source, and the cell reads the word and what was found."""
    score, memory, keys = model.attend.score, begun["source"]["memory"][0], begun["source"]["keys"][0]
    feeds = model.settings.feed
    entered = torch.cat([x, inside["context"]], dim=-1) if feeds else x
    names = [*components("e", x.size(2)), *components("c", entered.size(2) - x.size(2))]
    stepping = _cell(layer, EQUATIONS[type(layer)], entered, inside, first, "layer/0", lambda: names)

    def sections(step: int, head: int) -> Sections:
        asked = inside["hidden"][0, step] if not feeds else inside["hidden"][0, step - 1] if step else first["hidden"]
        weights, scores = numbers(inside["weights"][0, step]), numbers(inside["scores"][0, step])
        with torch.no_grad():
            lines = equations.named_scores(score, asked.to(keys.dtype), keys, source, scores)
        found = equations.look(
            source, lines, weights, numbers(memory), numbers(inside["context"][0, step]),
            bounded=isinstance(score, Bounded), tensors=("attention/cross/0", "hidden/layer/0/context"), step=step,
            letters=("c", "h"),
        )  # fmt: skip
        stepped = stepping(step, head)
        return [*found, *stepped] if feeds else [*stepped, *found]

    return sections


def _readout(model: Translator, parts: State, words: tuple[str, ...]) -> Callable[[int], Sections]:
    """The dense layer between the last state and the prediction, where there is one."""
    if not isinstance(model, Seq2Seq | Bahdanau) or not isinstance(model.readout, nn.Linear):
        return lambda step: []
    readout = model.readout
    layers = parts["layers"]
    top = layers[str(len(layers) - 1)]["hidden"]
    enters = {"s": top}
    if isinstance(model, Bahdanau):
        enters |= {"c": layers["0"]["context"], "e": parts["embedding"]}
    names = [name for letter, part in enters.items() for name in components(letter, part.size(2))]
    function = "tanh" if isinstance(model, Bahdanau) else ""

    def sections(step: int) -> Sections:
        x = np.concatenate([numbers(part[0, step]) for part in enters.values()])
        out = numbers(parts["hidden"][0, step])
        return [equations.dense(readout, x, names, function, out, "read-out", "r", "hidden/hidden", step)]

    return sections


def _encoder_places(model: Translator, parts: State, source: tuple[str, ...]) -> dict[str, Place]:
    """The layers of an encoder, whose steps are the words of the source."""
    encoder: Any = getattr(model, "encoder", None)
    x, places = parts["embedding"], {}
    spoken = labels(source)
    for number, (name, inside) in enumerate(parts["layers"].items()):
        if isinstance(encoder, RecurrentEncoder):
            ways = encoder.directions
            for place, way in enumerate(ways):
                weights = encoder.fused.all_weights[number * len(ways) + place]
                turned = way == "backward" or (isinstance(model, Seq2Seq) and model.settings.reverse)
                first = {memory: x.new_zeros(encoder.fused.hidden_size) for memory in encoder.memory}
                tensor = f"encoder/{name}/{way}"
                places[tensor] = Place(
                    _steps_of(encoder.equation, weights, x, inside[way], first, tensor, back=-1 if turned else 1),
                    0, source,
                )  # fmt: skip
            x = torch.cat([inside[way]["hidden"] for way in ways], dim=-1)
            continue
        block = encoder.blocks[number]
        if isinstance(block, EncoderBlock):
            at = _block(block, x, inside, f"encoder/{name}", f"attention/encoder/{name}", spoken, causal=False)
            places[f"encoder/{name}"] = Place(at, block.attention.heads, source)
        else:
            assert isinstance(block, FullSelfAttention)
            places[f"encoder/{name}"] = Place(_only_attention(block, x, inside, name, spoken), block.heads, source)
        x = inside["hidden"]
    return places


def _only_attention(
    layer: FullSelfAttention, x: Tensor, inside: State, name: str, spoken: Sequence[str]
) -> Callable[[int, int], Sections]:
    def sections(step: int, head: int) -> Sections:
        output = numbers(inside["hidden"][0, step])
        return [
            _projections(layer, x, inside, spoken, step, head),
            *_attention_lines(inside, spoken, step, head, len(spoken), f"attention/encoder/{name}"),
            equations.heads_joined(layer, _contexts(inside, step), output, f"hidden/encoder/{name}", step),
        ]

    return sections


# -- predictions -----------------------------------------------------------------------------------------------------


def _stack_prediction(
    model: Stack, parts: State, logits: Tensor, word: Callable[[int], str], then: Sequence[int], x: Tensor
) -> Callable[[int], Sections]:
    hidden = parts["hidden"]
    if not isinstance(model, NNLM):
        predict = _prediction(model, hidden[0], logits[0], word, then)
        layers = _dense_layers(model.finish)
        return lambda step: [*_through(layers, numbers(x[0, step])), *predict(step)]
    finish, width = model.finish, model.settings.width
    assert isinstance(finish, HiddenLayer)
    matrix, bias = model.output.of(model.embedding.table.weight)
    places = [
        name for back in range(model.settings.order - 2, -1, -1)
        for name in components(f"w−{back}" if back else "w", x.size(2) // (model.settings.order - 1))
    ]  # fmt: skip

    def sections(step: int) -> Sections:
        window, out = numbers(x[0, step]), numbers(hidden[0, step])
        asked = then[step]
        direct = None if model.direct is None else (numbers(model.direct.weight[asked]), window)
        return [
            equations.dense(finish.linear, window, places, "tanh", out[:width], "the tanh layer"),
            equations.prediction(
                matrix, bias, out[:width], numbers(logits[0, step]), lambda token: labels([word(token)])[0], asked,
                probability=_chance(logits[0, step], asked), direct=direct,
            ),
        ]  # fmt: skip

    return sections


def _prediction(
    model: Any, hidden: Tensor, logits: Tensor, word: Callable[[int], str], then: Sequence[int]
) -> Callable[[int], Sections]:
    """From hidden vectors and logits, a row for each step."""
    matrix, bias = model.output.of(model.embedding.table.weight)

    def sections(step: int) -> Sections:
        return [
            equations.prediction(
                matrix, bias, numbers(hidden[step]), numbers(logits[step]), lambda token: labels([word(token)])[0],
                then[step], probability=_chance(logits[step], then[step]),
            )
        ]  # fmt: skip

    return sections


def _chance(logits: Tensor, word: int) -> float:
    return float(logits.softmax(-1)[word])


def _dense_layers(finish: nn.Module) -> list[tuple[nn.Linear, str]]:
    """The feed-forward layers of a deep averaging network, each with its function."""
    modules = [part for part in finish.modules() if not isinstance(part, nn.Sequential | nn.Dropout)]
    return [
        (linear, "tanh" if isinstance(then, nn.Tanh) else "relu")
        for linear, then in pairwise(modules)
        if isinstance(linear, nn.Linear)
    ]


def _through(layers: Iterable[tuple[nn.Linear, str]], x: np.ndarray) -> Sections:
    """Dense layers one above the other."""
    found = []
    for number, (linear, function) in enumerate(layers):
        enters = torch.as_tensor(x, dtype=linear.weight.dtype, device=linear.weight.device)
        with torch.no_grad():
            out = numbers(getattr(torch, function)(linear(enters)))
        letter = "h" if number else "c"
        title = f"feed-forward layer {number}"
        found.append(equations.dense(linear, x, components(letter, len(x)), function, out, title))
        x = out
    return found


def _pooled(model: Classifier, memory: np.ndarray, whole: np.ndarray, words: Sequence[str]) -> Sections:
    """The mean of a source's vectors."""
    mean = memory.mean(axis=0)
    layers = _dense_layers(model.deepen) if model.settings.encoder == "dan" else []
    found = mean if layers else whole
    return [
        equations.average(words, memory, found, "m", "" if layers else "hidden/hidden", 0),
        *_through(layers, mean),
    ]
