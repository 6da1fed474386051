"""The layers of translators and encoders whose arithmetic can be shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.insight.arithmetic.attention import block_sections, cross_attention, full_attention, look, named_scores
from regard.insight.arithmetic.averaging import dense
from regard.insight.arithmetic.equation import components, numbers
from regard.insight.arithmetic.recurrent import EQUATIONS, cell_steps, recurrent_cell
from regard.insight.arithmetic.view import LayerView, Sections, SectionsAt
from regard.insight.words import labels
from regard.layers.attention import FullSelfAttention
from regard.layers.blocks import EncoderBlock
from regard.layers.encoder import RecurrentEncoder
from regard.layers.recurrent import Recurrent
from regard.layers.scores import Bounded
from regard.layers.state import State
from regard.systems.bahdanau import Bahdanau
from regard.systems.seq2seq import Seq2Seq
from regard.systems.transformer import Transformer
from regard.systems.translator import Translator


def decoder_places(
    model: Translator, parts: State, begun: State, words: tuple[str, ...], source: tuple[str, ...]
) -> dict[str, LayerView] | None:
    x, places = parts["embedding"], {}
    if isinstance(model, Transformer):
        for name, block in model.named_blocks():
            inside = parts["layers"][name]
            places[f"self/{name}"] = LayerView(
                block_sections(block, x, inside, f"layer/{name}", f"attention/self/{name}", labels(words)),
                block.attention.heads, words,
            )  # fmt: skip
            places[f"cross/{name}"] = LayerView(
                cross_attention(block, x, inside, name, labels(source)), block.cross.heads, words
            )
            x = inside["hidden"]
        return places
    if not isinstance(model, Seq2Seq | Bahdanau):
        return None
    for name, layer in model.layers.named_children():
        inside, first = parts["layers"][name], {key: part[0] for key, part in begun["past"][name].items()}
        assert isinstance(layer, Recurrent)
        if isinstance(model, Bahdanau) and name == "0":
            places["cross/0"] = LayerView(
                attending_cell(model, layer, x, inside, begun, first, labels(source)), 1, words
            )
        else:
            places[f"layer/{name}"] = LayerView(
                recurrent_cell(layer, EQUATIONS[type(layer)], x, inside, first, f"layer/{name}"), 0, words
            )
        x = inside["hidden"]
    return places


def attending_cell(
    model: Bahdanau, layer: Recurrent, x: Tensor, inside: State, begun: State, first: State, source: Sequence[str]
) -> SectionsAt:
    """Bahdanau's first layer: the state attends to the source, and the cell reads the word and the context."""
    score, memory, keys = model.attend.score, begun["source"]["memory"][0], begun["source"]["keys"][0]
    feeds = model.settings.feed
    entered = torch.cat([x, inside["context"]], dim=-1) if feeds else x
    names = [*components("e", x.size(2)), *components("c", entered.size(2) - x.size(2))]
    stepping = recurrent_cell(layer, EQUATIONS[type(layer)], entered, inside, first, "layer/0", lambda: names)

    def sections(step: int, head: int) -> Sections:
        asked = inside["hidden"][0, step] if not feeds else inside["hidden"][0, step - 1] if step else first["hidden"]
        weights, scores = numbers(inside["weights"][0, step]), numbers(inside["scores"][0, step])
        with torch.no_grad():
            lines = named_scores(score, asked.to(keys.dtype), keys, source, scores)
        found = look(
            source, lines, weights, numbers(memory), numbers(inside["context"][0, step]),
            bounded=isinstance(score, Bounded), tensors=("attention/cross/0", "hidden/layer/0/context"), step=step,
            letters=("c", "h"),
        )  # fmt: skip
        stepped = stepping(step, head)
        return [*found, *stepped] if feeds else [*stepped, *found]

    return sections


def readout_layer(model: Translator, parts: State, words: tuple[str, ...]) -> Callable[[int], Sections]:
    """The dense layer between the last state and the prediction, if there is one."""
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
        return [dense(readout, x, names, function, out, "read-out", "r", "hidden/hidden", step)]

    return sections


def encoder_places(model: Translator, parts: State, source: tuple[str, ...]) -> dict[str, LayerView]:
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
                places[tensor] = LayerView(
                    cell_steps(encoder.equation, weights, x, inside[way], first, tensor, back=-1 if turned else 1),
                    0, source,
                )  # fmt: skip
            x = torch.cat([inside[way]["hidden"] for way in ways], dim=-1)
            continue
        block = encoder.blocks[number]
        if isinstance(block, EncoderBlock):
            at = block_sections(block, x, inside, f"encoder/{name}", f"attention/encoder/{name}", spoken, causal=False)
            places[f"encoder/{name}"] = LayerView(at, block.attention.heads, source)
        else:
            assert isinstance(block, FullSelfAttention)
            places[f"encoder/{name}"] = LayerView(full_attention(block, x, inside, name, spoken), block.heads, source)
        x = inside["hidden"]
    return places
